select lease_owner, term, alive, mode, mode_reason, last_tick_status, lag_ms, pace_reason, slot_budget, slot_rate,
       extract(epoch from clock_timestamp() - last_tick_at)::float8 as tick_age,
       to_char(last_tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as ticked_at
  from public.v_governance_worker
 where worker_name = $1
