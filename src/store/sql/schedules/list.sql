select s.name, s.cron, s.every::text as every, s.zone, s.missed, s.executor, s.job_kind, s.domain, s.paused, s.next_run_at::text,
       s.last_run_at::text, s.last_error
  from public.v_queue_schedule s
 order by s.name
