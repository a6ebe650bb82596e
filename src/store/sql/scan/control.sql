select c.shards, c.stale_ms, gov_handoff.gov_ruleset_version() as version,
       exists (select from public.gov_invalidation i where i.done_at is null) as invalidated,
       -- One probe of the index, every few milliseconds. A comparison with clock_timestamp(), which changes from row to row, would read every group.
       coalesce((select min(g.stale_after) from public.gov_candidate_group g) < clock_timestamp(), false) as stale,
       (select jsonb_agg(jsonb_build_object('code', r.code, 'grain', r.grain, 'priority', r.priority, 'when', r.tests,
                                            'verdict', r.verdict, 'severity', r.severity, 'measurement', r.measurement,
                                            'enabled', r.enabled))
          from public.gov_verdict_rule r where r.enabled) as rules,
       array(select m.measurement_code from public.measurement_registry m where m.enabled
                and m.measurement_code in (select r.measurement from public.gov_verdict_rule r)) as measurements
  from public.gov_scan_control c
