select source_name, phase, last_watermark_ts, last_watermark_id, events_seen, attempts_written, dead_lettered, open_ranges,
       hot_ranges, last_run_at, extract(epoch from clock_timestamp() - last_run_at)::float8 as idle_seconds
  from public.v_governance_source
 where worker_name = $1
 order by source_name
