select a.job_id, a.outcome, a.reason from public.fn_job_complete(p_ids => $1, p_tokens => $2, p_evidence => $3) a
