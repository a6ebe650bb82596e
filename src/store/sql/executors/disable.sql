select public.fn_executor_disable(p_executor_id => $1, p_actor => $2)
