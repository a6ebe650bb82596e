select public.fn_job_may_enqueue(p_executor => $1)
