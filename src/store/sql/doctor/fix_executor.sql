select public.fn_executor_disable({executor}, null);
