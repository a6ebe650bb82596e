select s.executor_id, s.executor_kind, s.job_kind, s.event_domain, s.state, s.running, s.max_parallel, s.claimed, s.finished, s.rescued,
       extract(epoch from clock_timestamp() - s.last_tick_at)::float8 as tick_age
  from public.v_executor_subscription_health s
 order by s.executor_id, s.job_kind, s.event_domain
 limit 500
