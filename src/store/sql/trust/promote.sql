select moved, staged from gov_handoff.gov_trust_promote(p_worker => $1, p_owner => $2, p_term => $3, p_limit => $4)
