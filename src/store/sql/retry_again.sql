select gov_handoff.gov_retry_again($1, $2, $3, $4, $5, $6, $7)
