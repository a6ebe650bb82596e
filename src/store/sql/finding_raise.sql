select gov_handoff.gov_finding_raise($1, $2, $3, $4, $5)
