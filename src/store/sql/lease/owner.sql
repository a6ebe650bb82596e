select lease_owner from public.queue_heartbeat where executor_name = $1
