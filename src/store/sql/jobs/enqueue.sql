select a.job_id, a.outcome, a.reason from public.fn_job_enqueue_many(p_jobs => $1) a
