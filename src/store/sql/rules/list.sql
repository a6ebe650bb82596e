select r.code, r.grain, r.priority, r.tests, r.verdict, r.severity, r.measurement, r.enabled, r.built_in, r.changed_by,
       r.changed_at::text as changed_at, gov_handoff.gov_ruleset_version() as version
  from public.gov_verdict_rule r
 order by r.grain, r.priority, r.code
