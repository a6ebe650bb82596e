select distinct r.event_type
  from public.event_type_registry r
 where r.active
   and exists (select from public.event_pending p
                where p.event_type_hint = r.event_type and p.event_domain = r.event_domain and p.processed_at is null
                  and p.last_error is null and (r.event_domain = 'governance' or p.capture_payload ? 'event'))
