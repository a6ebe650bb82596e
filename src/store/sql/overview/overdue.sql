select job_id::text as job, job_kind, event_domain, executor, status::text as status,
       to_char(deadline_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as deadline
  from public.v_job_overdue
 limit 8
