select gov_handoff.gov_input_check_set(p_code => $1, p_enabled => $2, p_actor => $3)
