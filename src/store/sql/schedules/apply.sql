select a.name, a.outcome, a.reason from public.fn_schedule_apply(p_schedules => $1) a
