-- A job by its id or by its key, also if it has left for the archive.
select to_jsonb(q) as job, null::text as archived_at from public.job_queue q where q.id = $1
 union all
select to_jsonb(q), null from public.job_queue q where q.idempotency_key = $2
 union all
select a.job, a.archived_at::text from public.job_archive a where a.job_id = $1
 union all
select a.job, a.archived_at::text from public.job_archive a where a.idempotency_key = $2
 limit 1
