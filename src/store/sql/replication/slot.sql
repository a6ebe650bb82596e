select s.plugin, s.slot_type, s.database, s.active, s.active_pid, s.confirmed_flush_lsn, s.wal_status, s.safe_wal_size,
       case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end as retained
  from pg_replication_slots s
 where s.slot_name = $1
