-- Queues the jobs of some letters again. The gate closes the letters. Returns the letters whose jobs were dead letters.
select d.id
  from public.fn_job_redrive(
           p_ids => array(select l.event_ref from public.iu_route_dead_letter l where l.id = any ($1) and l.worker_name = 'job_queue'),
           p_actor => $2) r
  join public.iu_route_dead_letter d on d.event_ref = r.job_id and d.worker_name = 'job_queue'
 where r.outcome = 'done'
