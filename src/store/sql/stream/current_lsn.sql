select pg_current_wal_lsn()
