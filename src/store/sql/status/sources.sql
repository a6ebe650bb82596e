-- Everything that was committed before its latest certificate is handed off: the certificate's pass saw it in one snapshot.
select s.source_name, s.phase, s.last_watermark_ts, s.last_watermark_id, s.events_seen, s.attempts_written, s.dead_lettered,
       s.open_ranges, s.hot_ranges, s.last_run_at, extract(epoch from clock_timestamp() - s.last_run_at)::float8 as idle_seconds,
       to_char(p.taken_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as complete_through,
       greatest(extract(epoch from clock_timestamp() - p.taken_at), 0)::float8 as proven_ago,
       b.policy, b.row_count
  from public.v_governance_source s
  left join public.v_gov_backlog b on b.source_name = s.source_name
  left join lateral (select (c.certificate ->> 'taken_at')::timestamptz as taken_at
                       from public.v_governance_certificate c
                      where c.worker_name = s.worker_name and c.source_name = s.source_name) p on true
 where s.worker_name = $1
 order by s.source_name
