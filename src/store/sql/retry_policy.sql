select gov_handoff.gov_config_number('event.retry.max_attempts', $1, 1, 1000),
       gov_handoff.gov_config_number('event.retry.base_ms', $2, 1, 86400000),
       gov_handoff.gov_config_number('event.retry.cap_ms', $3, 1, 86400000)
