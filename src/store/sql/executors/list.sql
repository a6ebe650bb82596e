select v.executor_id, v.executor_kind, v.role_name::text, v.state, v.last_tick_at::text, v.job_kind, v.event_domain, v.priority_floor,
       v.max_parallel, v.enabled, v.running, v.claimed, v.finished, v.rescued
  from public.v_executor_subscription_health v
 order by v.executor_id, v.job_kind nulls first, v.event_domain nulls first
