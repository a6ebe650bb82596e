-- A type of another domain than our own is named with its domain.
select case when r.event_type like any ('{governance.handoff.%,governance.finding.%}') or r.event_type = 'queue_worker_silent'
            then r.event_type else r.event_domain || '/' || r.event_type end as event_type,
       r.event_stream, r.active,
       (select count(*) from public.event_pending p
         where p.event_domain = r.event_domain and p.event_type_hint = r.event_type and p.processed_at is null
           and (r.event_domain = 'governance' or p.capture_payload ? 'event')) as waiting
  from public.event_type_registry r
 order by 1
