select public.fn_executor_register(p_executor_id => $1, p_executor_kind => $2, p_actor => $3, p_role => $4::text::name)
