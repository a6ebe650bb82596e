select lease_owner, term, coalesce(alive, false) as alive, mode, ttl_ms, lag_ms, ticks_total, slot_budget,
       greatest(extract(epoch from clock_timestamp() - last_tick_at), 0)::float8 as tick_age,
       extract(epoch from last_tick_at)::float8 as ticked_at
  from public.v_governance_worker
 where worker_name = $1
