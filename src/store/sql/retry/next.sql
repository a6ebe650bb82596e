select (extract(epoch from min(coalesce(r.next_attempt_at, clock_timestamp())) - clock_timestamp()) * 1000)::bigint
  from public.v_governance_retry r
