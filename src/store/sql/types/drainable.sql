select distinct r.event_type
  from public.event_type_registry r
 where r.event_domain = 'governance' and r.active
   and exists (select from public.event_pending p
                where p.event_type_hint = r.event_type and p.event_domain = 'governance' and p.processed_at is null
                  and p.last_error is null)
