select metadata ->> 'mode' as mode, metadata ->> 'mode_reason' as reason
  from public.queue_heartbeat
 where executor_name = 'gov_handoff_selftest' and lease_owner is not null and (metadata ->> 'pid')::bigint = $1
