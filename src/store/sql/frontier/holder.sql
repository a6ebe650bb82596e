-- The holder of the oldest transaction id in use: a backend, or a prepared transaction that was never finished.
select coalesce('pid ' || a.pid, 'prepared transaction ' || quote_literal(p.gid)) as who,
       coalesce(a.usename::text, p.owner::text) as role, a.application_name, a.pid, p.gid,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8 as open_seconds
  from (select pg_snapshot_xmin(pg_current_snapshot())::xid as xmin) s
  left join pg_stat_activity a on a.backend_xid = s.xmin
  left join pg_prepared_xacts p on p.transaction = s.xmin
 where coalesce(a.pid::text, p.gid) is not null
 limit 1
