select a.job_id, a.outcome, a.reason
  from public.fn_job_fail(p_id => $1, p_token => $2, p_error => $3, p_retry => $4) a
