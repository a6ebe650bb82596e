-- The newest jobs first: the id of a job begins with the time it was enqueued. A parameter that is null does not restrict.
select q.id, q.idempotency_key, q.job_kind, q.event_domain, q.executor, q.status, q.priority::int as priority, q.attempts,
       q.max_attempts, q.lease_owner, q.next_run_at::text, q.deadline_at::text, q.last_error, q.created_at::text
  from public.job_queue q
 where ($1::text is null or q.status = $1)
   and ($2::text is null or q.job_kind = $2)
   and ($3::text is null or q.executor = $3)
   and ($4::text is null or q.event_domain = $4)
 order by q.id desc limit $5
