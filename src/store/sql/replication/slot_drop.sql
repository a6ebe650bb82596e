select pg_drop_replication_slot($1)
