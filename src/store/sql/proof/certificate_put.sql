select gov_handoff.gov_certificate_put(
    p_worker => $1, p_owner => $2, p_term => $3, p_cursor_worker => $4, p_source => $5, p_certificate => $6,
    p_history => $7, p_version => $8)
