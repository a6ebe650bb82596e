select d.id from public.iu_route_dead_letter d
 where d.worker_name = 'job_queue' and d.event_ref = $1 and d.resolved_at is null
