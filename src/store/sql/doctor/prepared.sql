select p.gid, p.owner::text as owner, p.database::text as database,
       extract(epoch from clock_timestamp() - p.prepared)::float8 as open_seconds
  from pg_prepared_xacts p
 order by p.prepared
 limit 20
