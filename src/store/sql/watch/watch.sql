select worker_name, last_tick_at::text as last_tick_at, silent_seconds, cadence_seconds, verdict, resigned
  from public.fn_governance_watch()
