drop table public.job_subscription;
drop table public.gov_invalidation;
drop table public.gov_candidate_state;
drop table public.gov_candidate_group;
drop table public.gov_worker_frontier;
drop table public.gov_repair_total;
drop table public.gov_stream_position;
drop table public.gov_worker_gap;
drop table public.gov_source_version;
drop table public.gov_source_table;
drop table public.gov_worker_cursor;
-- Event types and settings are removed only where nothing refers to them.
delete from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type like 'governance.handoff.%'
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
delete from public.dot_config where key in ('governance.ruleset_version', 'governance.holes.kept');
drop table gov_handoff.definitions;
drop table gov_handoff.batches;
drop schema gov_handoff;
