select gov_handoff.gov_gap_cool(p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_opened_before => $5)
