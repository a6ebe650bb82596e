select r.event_type, r.event_stream, r.active,
       (select count(*) from public.event_pending p
         where p.event_domain = 'governance' and p.event_type_hint = r.event_type and p.processed_at is null) as waiting
  from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type like any ('{governance.handoff.%,governance.finding.%}')
    or r.event_domain = 'system' and r.event_type = 'queue_worker_silent'
 order by r.event_type
