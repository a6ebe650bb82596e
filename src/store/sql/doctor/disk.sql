-- Where the log is, and how much of it the slot retains. A role that may not know the directory does not see its row in
-- pg_settings; asking for the setting itself would be an error.
select (select d.setting from pg_settings d where d.name = 'data_directory') as directory, pg_backend_pid() as pid,
       (select k.setting::bigint * case when k.setting::bigint < 0 then 1 else 1048576 end
          from pg_settings k where k.name = 'max_slot_wal_keep_size') as keep_size,
       (select case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end
          from pg_replication_slots s where s.slot_name = $1) as retained,
       (select s.safe_wal_size from pg_replication_slots s where s.slot_name = $1) as safe_wal_size
