select a.job_id, a.outcome, a.reason from public.fn_job_redrive(p_ids => $1, p_actor => $2) a
