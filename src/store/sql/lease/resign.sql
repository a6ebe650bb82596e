select gov_handoff.gov_lease_resign($1, $2, $3)
