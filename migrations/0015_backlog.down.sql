drop view public.v_gov_backlog;
drop function gov_handoff.gov_backfill_page, gov_handoff.gov_backlog_yield, gov_handoff.gov_backlog_release,
    gov_handoff.gov_backlog_holds, gov_handoff.gov_source_bound, gov_handoff.gov_backlog_forget, gov_handoff.gov_backlog_stage,
    gov_handoff.gov_backlog_begin;
drop table public.gov_backlog_staging;
drop table public.gov_backlog_key;
drop table public.gov_backlog_range;
drop table public.gov_source_boundary;
delete from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type = 'governance.finding.backlog_not_seeded'
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
