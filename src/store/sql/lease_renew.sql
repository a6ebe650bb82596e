select gov_handoff.gov_lease_renew($1, $2, $3, $4)
