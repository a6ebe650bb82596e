drop function gov_handoff.gov_selftest_clean;
drop function gov_handoff.gov_selftest_claim;
drop table gov_handoff.rehearsals;
revoke delete on public.event_pending, public.iu_route_dead_letter, public.system_issues, public.queue_heartbeat
    from gov_handoff_owner;
