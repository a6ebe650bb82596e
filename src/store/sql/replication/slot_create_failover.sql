-- From 17 on a slot can be kept on a standby, so that a failover continues it.
select lsn from pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)
