drop view public.v_governance_retry;
drop function public.gov_dead_letter_failed, public.gov_dead_letter_replayed, public.gov_dead_letter_lease,
    public.gov_dead_letter_resolve, public.gov_dead_letter_close, public.gov_dead_letter_put, public.gov_dead_letter_watch,
    public.gov_retry_done, public.gov_retry_again, public.gov_handoff_stage, public.gov_retry_schedule,
    public.gov_config_number;
delete from public.dot_config where key = 'event.dlq.overflow';
