select gov_handoff.gov_dead_letter_resolve($1, $2, $3, $4)
