select gov_handoff.gov_retry_again(
    p_worker => $1, p_owner => $2, p_term => $3, p_id => $4, p_attempts => $5, p_error => $6, p_delay_ms => $7)
