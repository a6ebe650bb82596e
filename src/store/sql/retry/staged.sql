select r.id, r.source_key, r.attempts, r.last_error
  from public.v_governance_retry r
 where r.source_name = $1 and r.id > $3 and ($2 or coalesce(r.next_attempt_at <= clock_timestamp(), true))
 order by r.id
 limit $4
