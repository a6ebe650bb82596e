select taken, fed from gov_handoff.gov_feed_take(p_worker => $1, p_owner => $2, p_term => $3, p_limit => $4, p_begins => $5)
