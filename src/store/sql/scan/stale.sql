select gov_handoff.gov_scan_stale(p_worker => $1, p_owner => $2, p_term => $3, p_limit => $4, p_shard => $5, p_shards => $6)
