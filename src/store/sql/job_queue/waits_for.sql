select d.depends_on, q.idempotency_key, q.status
  from public.job_dependency d left join public.job_queue q on q.id = d.depends_on
 where d.job_id = $1
 order by d.depends_on
