-- From PostgreSQL 18 on; null before.
select extract(epoch from nullif(current_setting('idle_replication_slot_timeout', true), '')::interval)::float8 as seconds
