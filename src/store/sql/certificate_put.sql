select gov_handoff.gov_certificate_put($1, $2, $3, $4, $5, $6, $7)
