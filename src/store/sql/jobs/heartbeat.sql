select a.job_id, a.outcome, a.reason
  from public.fn_job_heartbeat(p_executor_id => $1, p_ids => $2, p_tokens => $3, p_extend => $4::bigint * interval '1 millisecond') a
