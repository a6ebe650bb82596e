select h.payload, h.created_at::text
  from (select o.safe_payload as payload, o.created_at from public.event_outbox o
         where o.event_domain = 'governance' and o.event_type = 'governance.handoff.certified'
         union all
        select p.capture_payload, p.created_at from public.event_pending p
         where p.event_domain = 'governance' and p.event_type_hint = 'governance.handoff.certified'
           and p.processed_at is null) h
 order by h.created_at desc
 limit $1
