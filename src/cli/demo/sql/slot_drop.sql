select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1
