-- In the order of the index by group, so that a page costs as much as it shows, however large the group is.
select c.candidate_key, c.group_key, c.input_quality_state, c.input_reason, c.candidate_verdict, c.verdict_rule, c.severity,
       c.ruleset_version, c.retired, c.dirty, c.last_kind, c.scanned_at::text as scanned_at
  from public.v_gov_candidate c
 where c.group_key = $3 and (c.group_mark, c.candidate_key) > (coalesce((select a.group_mark from public.v_gov_candidate a where a.candidate_key = $1), -1), $1)
 order by c.group_mark, c.candidate_key
 limit $2
