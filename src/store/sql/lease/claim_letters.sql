select held, term, owner, age_ms, former from gov_handoff.gov_dead_letter_lease($1, $2::bigint * interval '1 millisecond')
