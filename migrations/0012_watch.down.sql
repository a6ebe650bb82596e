drop view public.v_governance_stream;
drop view public.v_governance_certificate_history;
drop view public.v_governance_certificate;
drop view public.v_governance_summary;
drop view public.v_governance_finding;
drop index public.gov_candidate_group_dirty;
drop trigger gov_watermark_monotone on public.gov_worker_cursor;
drop function public.fn_governance_route_worker_health, gov_handoff.gov_captured, gov_handoff.gov_dirty_groups, public.fn_governance_watch,
    gov_handoff.gov_finding_orphans, gov_handoff.gov_watch_cadence, gov_handoff.gov_config_interval, gov_handoff.gov_heartbeat_emit,
    gov_handoff.gov_watermark_hold;
delete from public.event_type_registry r
 where (r.event_domain = 'governance' and r.event_type like 'governance.finding.%'
        or r.event_domain = 'system' and r.event_type = 'queue_worker_silent' and not r.active)
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
delete from public.dot_config where key = 'governance.watch.planned_stop';
