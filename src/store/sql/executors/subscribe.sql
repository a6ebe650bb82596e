select public.fn_job_subscribe(
    p_executor_id => $1, p_job_kind => $2, p_domain => $3, p_priority_floor => $4, p_max_parallel => $5, p_enabled => $6, p_actor => $7)
