select current_setting('wal_level') as wal_level,
       current_setting('server_version_num')::int as version,
       getdatabaseencoding()::text as encoding,
       pg_is_in_recovery() as recovering,
       (select count(*) from pg_replication_slots) < current_setting('max_replication_slots')::int as slot_free,
       (select rolreplication or rolsuper from pg_roles where rolname = current_user) as may_replicate
