select gov_handoff.gov_feed_add(p_worker => $1, p_owner => $2, p_term => $3, p_ids => $4, p_begins => $5, p_ends => $6)
