-- The fullest lanes; each is counted up to 10,000.
select l.executor, l.job_kind, l.event_domain, l.priority::text as priority, l.ready, l.ready_is_more,
       extract(epoch from clock_timestamp() - l.oldest_ready_at)::float8 as oldest
  from public.v_job_lane l
 where l.ready > 0
 order by l.ready desc, l.lane_id
 limit 500
