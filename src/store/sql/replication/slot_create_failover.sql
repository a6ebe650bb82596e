-- From PostgreSQL 17 on, a standby can keep the slot, so that the stream continues after a failover.
select lsn from pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)
