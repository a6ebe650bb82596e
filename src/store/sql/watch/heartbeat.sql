select gov_handoff.gov_heartbeat_emit($1, $2, $3)
