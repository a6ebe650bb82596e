select worker_name, state, lease_owner, term, extract(epoch from clock_timestamp() - last_tick_at)::float8 as tick_age,
       paused_because, paused_by, rows_seen, effects, dead_lettered,
       extract(epoch from clock_timestamp() - last_run_at)::float8 as idle_seconds, phase, progress
  from public.v_gov_worker
 order by worker_name
