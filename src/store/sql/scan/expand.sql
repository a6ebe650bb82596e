select id, marked, total, seen, done from gov_handoff.gov_invalidation_expand(p_worker => $1, p_owner => $2, p_term => $3, p_limit => $4)
