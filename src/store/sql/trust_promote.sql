select moved, staged from gov_handoff.gov_trust_promote($1, $2, $3, $4)
