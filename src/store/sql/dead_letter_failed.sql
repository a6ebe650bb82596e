select gov_handoff.gov_dead_letter_failed($1, $2, $3, $4, $5, $6)
