-- The gates of 0003 to 0006 go with their own steps; what 0007 replaced among them need not come back before that.
drop view public.v_governance_retry;
do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'public'::regnamespace
           and p.proname in ('gov_config_number', 'gov_retry_schedule', 'gov_handoff_stage', 'gov_retry_again', 'gov_retry_done',
               'gov_dead_letter_watch', 'gov_dead_letter_put', 'gov_dead_letter_close', 'gov_dead_letter_resolve',
               'gov_dead_letter_replayed', 'gov_dead_letter_failed', 'gov_dead_letter_lease')
    loop
        execute format('drop function %s', f);
    end loop;
end
$$;
delete from public.dot_config where key = 'event.dlq.overflow';
