drop view public.v_queue_schedule;
do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname ~ '^gov_(schedule_|cron_|local_moment$)'
            or p.pronamespace = 'public'::regnamespace and p.proname ~ '^fn_schedule_'
    loop
        execute format('drop function %s', f);
    end loop;
end
$$;
drop table public.queue_schedule;
delete from public.dot_config where key = 'job.schedule.grace_ms';
delete from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type = 'governance.finding.schedule_failed'
   and not exists (select from public.event_outbox e where e.event_domain = r.event_domain and e.event_type = r.event_type);
