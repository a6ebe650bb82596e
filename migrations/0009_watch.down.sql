-- The gates that were replaced go with 0003, the wider view of the workers with 0004.
drop view public.v_governance_stream;
drop view public.v_governance_certificate_history;
drop view public.v_governance_certificate;
drop view public.v_governance_summary;
drop view public.v_governance_finding;
drop index public.gov_candidate_group_dirty;
drop trigger gov_watermark_monotone on public.gov_worker_cursor;
drop function public.gov_watermark_hold();
drop function public.fn_governance_route_worker_health(text);
drop function public.fn_governance_watch(timestamptz);
drop function public.gov_heartbeat_emit(text, text, bigint);
drop function public.gov_finding_sustain(text, text, text, jsonb, interval);
drop function public.gov_finding_emit(text, text, text, text, bigint);
drop function public.gov_severity_rank(text);
delete from public.event_type_registry r
 where (r.event_domain = 'governance' and r.event_type like 'governance.finding.%'
        or r.event_domain = 'system' and r.event_type = 'queue_worker_silent' and not r.active)
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
delete from public.dot_config where key = 'governance.watch.planned_stop';
