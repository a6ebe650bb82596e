select gov_handoff.gov_retry_done($1, $2, $3, $4, $5)
