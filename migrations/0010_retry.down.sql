drop view public.v_governance_retry;
drop function gov_handoff.gov_dead_letter_failed, gov_handoff.gov_dead_letter_replayed, gov_handoff.gov_dead_letter_lease,
    gov_handoff.gov_dead_letter_resolve, gov_handoff.gov_dead_letter_close, gov_handoff.gov_dead_letter_put, gov_handoff.gov_dead_letter_watch,
    gov_handoff.gov_retry_done, gov_handoff.gov_retry_again, gov_handoff.gov_handoff_stage, gov_handoff.gov_retry_schedule,
    gov_handoff.gov_config_number;
delete from public.dot_config where key = 'event.dlq.overflow';
