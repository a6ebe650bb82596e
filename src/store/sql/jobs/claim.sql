-- Times as microseconds since 1970. $3: the lease in milliseconds. $4: start the jobs in the same commit.
select c.job_id, c.token, c.job_kind, c.event_domain, c.payload_ref, c.safe_payload, c.attempt,
       (extract(epoch from c.lease_until) * 1000000)::bigint as lease_until,
       case when isfinite(c.deadline_at) then (extract(epoch from c.deadline_at) * 1000000)::bigint end as deadline_at
  from public.fn_job_claim(p_executor_id => $1, p_limit => $2, p_lease => $3::bigint * interval '1 millisecond', p_start => $4) c
