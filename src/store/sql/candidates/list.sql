select c.candidate_key, c.group_key, c.input_quality_state, c.input_reason, c.candidate_verdict, c.verdict_rule, c.severity,
       c.ruleset_version, c.retired, c.dirty, c.last_kind, c.scanned_at::text as scanned_at
  from public.v_gov_candidate c
 where c.candidate_key > $1
 order by c.candidate_key
 limit $2
