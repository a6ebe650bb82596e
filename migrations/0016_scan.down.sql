drop view public.v_gov_group, public.v_gov_candidate, public.v_gov_certificate, public.v_gov_dead_letter_open, public.v_gov_coverage,
    public.v_gov_dirty;
drop function gov_handoff.gov_scan_shard, gov_handoff.gov_scan_divide, gov_handoff.gov_scan_put, gov_handoff.gov_scan_stale,
    gov_handoff.gov_verdict_emit, gov_handoff.gov_verdict_events, gov_handoff.gov_invalidation_expand, gov_handoff.gov_rules_put,
    gov_handoff.gov_ruleset_version;
drop index public.gov_candidate_group_stale;
drop table public.gov_verdict_rule, public.gov_scan_control, public.gov_candidate_departure, public.gov_verdict_tally;
revoke select on public.measurement_registry from gov_handoff_worker, gov_handoff_operator;
delete from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type = 'governance.candidate.verdict_changed'
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
