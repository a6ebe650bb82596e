select public.fn_executor_heartbeat(p_executor_id => $1)
