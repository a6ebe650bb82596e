select gov_handoff.gov_gap_cool($1, $2, $3, $4, $5)
