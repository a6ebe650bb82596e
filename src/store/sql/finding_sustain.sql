select gov_handoff.gov_finding_sustain($1, $2, $3, $4, $5::bigint * interval '1 millisecond')
