select a.job_id, a.outcome, a.reason from public.fn_job_release(p_ids => $1, p_tokens => $2) a
