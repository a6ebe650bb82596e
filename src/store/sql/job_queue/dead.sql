-- Jobs that are dead letters, oldest first.
select d.event_ref
  from public.iu_route_dead_letter d
 where d.worker_name = 'job_queue' and d.resolved_at is null
   and ($1::text is null or d.event_type = $1)
 order by d.first_failed_at, d.id
