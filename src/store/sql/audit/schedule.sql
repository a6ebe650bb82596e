-- The sources in the order in which their next full audit is due. `due_in`: in milliseconds, not above zero when it is due.
-- `minute`: of the server's day, in UTC, for windows.
select v.source_name,
       (extract(epoch from v.counts_from + $2::bigint * interval '1 millisecond' - clock_timestamp()) * 1000)::bigint as due_in,
       (extract(hour from clock_timestamp() at time zone 'UTC') * 60 + extract(minute from clock_timestamp() at time zone 'UTC'))::int as minute
  from public.v_gov_full_audit v
 where v.intake = $1
 order by v.counts_from, v.source_name
