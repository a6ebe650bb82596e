-- Connections that an ordinary role may have. What autovacuum and walsenders take does not count.
select (select count(*) from pg_stat_activity a where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()) as used,
       current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint as most
