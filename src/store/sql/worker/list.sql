select worker_name, state, lease_owner, term, extract(epoch from clock_timestamp() - last_tick_at)::float8 as tick_age,
       paused_because, paused_by,
       to_char(paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as paused_at, rows_seen, effects, dead_lettered,
       extract(epoch from clock_timestamp() - last_run_at)::float8 as idle_seconds, phase, progress
  from public.v_gov_worker
 order by worker_name
