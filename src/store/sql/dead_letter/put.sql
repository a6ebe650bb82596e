select gov_handoff.gov_dead_letter_put(
    p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_staged => $5, p_ref => $6, p_letter => $7,
    p_code => $8, p_detail => $9, p_attempts => $10, p_snapshot => $11, p_signals => $12, p_version => $13)
