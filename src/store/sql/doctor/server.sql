select current_setting('server_version_num')::int as version,
       pg_is_in_recovery() as recovering,
       current_setting('wal_level') as wal_level,
       (select count(*) from pg_replication_slots) as slots,
       current_setting('max_replication_slots')::bigint as most_slots,
       (select count(*) from pg_stat_replication) as senders,
       current_setting('max_wal_senders')::bigint as most_senders,
       exists (select from pg_replication_slots s where s.slot_name = $1) as slot_there,
       coalesce((select s.active from pg_replication_slots s where s.slot_name = $1), false) as slot_read,
       -- In megabytes; a negative value means no limit.
       (select k.setting::bigint * case when k.setting::bigint < 0 then 1 else 1048576 end
          from pg_settings k where k.name = 'max_slot_wal_keep_size') as keep_size,
       extract(epoch from clock_timestamp())::float8 as clock
