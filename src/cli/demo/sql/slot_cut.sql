select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1 and active_pid is not null
