select gov_handoff.gov_finding_resolve($1, $2)
