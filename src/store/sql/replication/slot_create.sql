select lsn from pg_create_logical_replication_slot($1, 'pgoutput')
