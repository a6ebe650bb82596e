do $$
declare
    v record;
begin
    for v in
        select c.oid::regclass as name from pg_class c
         where c.oid in (to_regclass('public.v_iu_event_backlog'), to_regclass('public.v_iu_route_dead_letter_open'))
           and obj_description(c.oid, 'pg_class') like 'gov-handoff: %'
    loop
        execute format('drop view %s', v.name);
    end loop;
end
$$;
drop function public.fn_queue_route_worker_health;
drop view public.v_queue_health, public.v_job_overdue, public.v_executor_subscription_health, public.v_job_lane;
drop function gov_handoff.gov_job_tick, gov_handoff.gov_job_tidy, gov_handoff.gov_job_page_sweep, gov_handoff.gov_job_rehome, gov_handoff.gov_job_deadlines,
    gov_handoff.gov_job_settle, gov_handoff.gov_job_due, gov_handoff.gov_job_rescue;
drop table public.job_overdue, public.job_sweep;
delete from public.dot_config where key = 'job.archive.after_ms';
delete from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type in ('governance.finding.job_dlq', 'governance.finding.job_overdue', 'governance.finding.job_tick_failed')
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
