select pg_snapshot_xmin(pg_current_snapshot())::text as xmin,
       pg_snapshot_xmax(pg_current_snapshot())::text as xmax,
       now()::text as taken_at,
       pg_is_in_recovery() as recovering,
       (select system_identifier::text from pg_control_system()) as system_identifier,
       case when pg_is_in_recovery() then null else pg_current_wal_lsn() end as lsn
