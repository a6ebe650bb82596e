select t.at::text, t.from_status, t.to_status, t.token, t.executor_id, t.actor_ref, t.reason
  from public.job_transition t
 where t.job_id = $1
 order by t.at, t.token nulls first
