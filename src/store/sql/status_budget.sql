select (metadata ->> 'slot_budget')::bigint as budget, (metadata ->> 'slot_rate')::float8 as rate
  from public.queue_heartbeat
 where executor_name = $1
