-- Those with a verdict among the next $2 candidates. One row at least: it says how far was looked, also if none has the verdict.
with page as materialized (
    select v.*, row_number() over (order by v.candidate_key) as n
      from (select c.* from public.v_gov_candidate c where c.candidate_key > $1 order by c.candidate_key limit $2) v)
select e.looked, e.looked_to, c.candidate_key, c.group_key, c.input_quality_state, c.input_reason, c.candidate_verdict, c.verdict_rule, c.severity,
       c.ruleset_version, c.retired, c.dirty, c.last_kind, c.scanned_at::text as scanned_at
  from (select count(*) as looked, (array_agg(p.candidate_key order by p.n desc))[1] as looked_to from page p) e
  left join page c on c.candidate_verdict = $3
 order by c.n
