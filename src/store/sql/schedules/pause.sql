select public.fn_schedule_pause(p_name => $1, p_paused => $2, p_actor => $3)
