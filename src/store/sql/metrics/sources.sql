-- The range that reaches the end of the type does not count. A source without ranges has neither hot nor cold ones.
select s.source_name, s.events_seen, s.attempts_written, s.dead_lettered, greatest(s.hot_ranges, 0) as hot,
       greatest(s.open_ranges - greatest(s.hot_ranges, 0), 0) as cold,
       greatest(extract(epoch from clock_timestamp() - s.certified_at), 0)::float8 as frontier_age,
       greatest(pg_snapshot_xmax(pg_current_snapshot())::text::numeric - s.frontier::numeric, 0)::bigint as frontier_behind,
       greatest(extract(epoch from clock_timestamp() - (c.certificate ->> 'taken_at')::timestamptz), 0)::float8
           as certificate_age,
       extract(epoch from s.certified_at)::float8 as frontier_at,
       extract(epoch from (c.certificate ->> 'taken_at')::timestamptz)::float8 as certificate_at
  from public.v_governance_source s
  left join public.v_governance_certificate c on c.worker_name = s.worker_name and c.source_name = s.source_name
 where s.worker_name = $1
 order by s.source_name
