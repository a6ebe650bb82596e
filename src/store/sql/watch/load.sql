-- How many sessions of this database wait for a lock, without our own, and how many of them wait for a lock of ours.
-- Also how far the standbys are behind: null if there is none, or if we may not see it. Logical receivers are not
-- standbys.
with ours as (
    select a.pid from pg_stat_activity a where a.application_name like 'gov-handoff%'
), waiting as (
    select distinct l.pid
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid and a.datname = current_database()
     where not l.granted and l.pid not in (select pid from ours)
)
select (select count(*) from waiting) as lock_waits,
       (select count(*) from waiting w where pg_blocking_pids(w.pid) && array(select pid from ours)) as blocked_by_us,
       (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn))::bigint
          from pg_stat_replication r
         where r.replay_lsn is not null
           and not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')) as standby_lag,
       (extract(hour from clock_timestamp() at time zone 'UTC') * 60
        + extract(minute from clock_timestamp() at time zone 'UTC'))::int as minute
