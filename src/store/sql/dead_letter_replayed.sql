select gov_handoff.gov_dead_letter_replayed($1, $2, $3, $4, $5, $6, $7)
