select pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint
  from pg_replication_slots s
 where s.slot_name = $1 and s.plugin = 'pgoutput' and s.database = current_database()
