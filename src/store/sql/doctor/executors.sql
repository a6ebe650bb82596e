-- Executors that may claim jobs, are subscribed to some, and are not heard of.
select v.executor_id, extract(epoch from clock_timestamp() - max(v.last_tick_at))::float8 as silent_for
  from public.v_executor_subscription_health v
 where v.enabled and v.state in ('silent', 'never_seen')
 group by v.executor_id
 order by v.executor_id
 limit 20
