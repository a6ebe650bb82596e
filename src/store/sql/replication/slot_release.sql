-- Ends the walsender that holds the slot, and waits until the slot is free.
select pg_terminate_backend(s.active_pid, 5000)
  from pg_replication_slots s
 where s.slot_name = $1 and s.active_pid is not null
