drop trigger gov_job_transitions on public.job_queue;
do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname ~ '^gov_(job|executor)_'
            or p.pronamespace = 'public'::regnamespace and p.proname ~ '^fn_(job|executor|mot)_'
    loop
        execute format('drop function %s', f);
    end loop;
end
$$;
drop view public.job_transition;
drop table public.job_step, public.job_archive, public.job_evidence, public.job_running, public.job_claim, public.job_deadline, public.job_dependency,
    public.job_deferred, public.job_lane_head, public.job_lane_floor, public.job_ready, public.job_lane, public.job_producer, public.job_executor,
    public.job_transition_rule;
drop sequence public.job_token_seq;
revoke all on public.job_queue, public.job_subscription from gov_handoff_owner, gov_handoff_operator;
revoke usage on schema public, gov_handoff from gov_handoff_producer, gov_handoff_executor;
delete from public.dot_config where key in ('job.notify', 'job.executor.silent_ms');
