select pg_drop_replication_slot(s.slot_name) from pg_replication_slots s where s.slot_name = {slot} and not s.active;
