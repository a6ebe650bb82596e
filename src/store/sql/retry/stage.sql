select gov_handoff.gov_handoff_stage(
    p_worker => $1, p_owner => $2, p_term => $3, p_table => $4, p_id => $5, p_ref => $6, p_letter => $7,
    p_address => $8, p_actor => $9, p_error => $10, p_payload => $11, p_delay_ms => $12, p_version => $13)
