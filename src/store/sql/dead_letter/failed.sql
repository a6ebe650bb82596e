select gov_handoff.gov_dead_letter_failed(
    p_worker => $1, p_owner => $2, p_term => $3, p_id => $4, p_code => $5, p_detail => $6)
