-- By lane, the lanes with jobs first; as many as a scrape should carry.
select l.executor, l.job_kind, l.event_domain, l.priority::text as priority, l.ready,
       extract(epoch from clock_timestamp() - l.oldest_ready_at)::float8 as oldest
  from public.v_job_lane l
 order by l.ready desc, l.lane_id limit 500
