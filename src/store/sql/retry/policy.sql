select gov_handoff.gov_config_number(p_key => 'event.retry.max_attempts', p_default => $1, p_min => 1, p_max => 1000),
       gov_handoff.gov_config_number(p_key => 'event.retry.base_ms', p_default => $2, p_min => 1, p_max => 86400000),
       gov_handoff.gov_config_number(p_key => 'event.retry.cap_ms', p_default => $3, p_min => 1, p_max => 86400000)
