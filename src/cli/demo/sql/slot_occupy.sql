select pg_create_physical_replication_slot($1)
