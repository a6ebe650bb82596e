select s.executor_id, s.job_kind, s.event_domain, s.state = 'alive' as alive, s.running, s.claimed, s.finished, s.rescued
  from public.v_executor_subscription_health s
 order by s.executor_id, s.job_kind, s.event_domain limit 500
