select gov_handoff.gov_scan_divide(p_worker => $1, p_owner => $2, p_term => $3, p_shards => $4, p_stale_ms => $5)
