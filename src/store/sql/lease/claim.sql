select held, term, owner, age_ms, former from gov_handoff.gov_lease_claim($1, $2, $3::bigint * interval '1 millisecond')
