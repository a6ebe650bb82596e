select gov_handoff.gov_key_reused(p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_subjects => $5)
