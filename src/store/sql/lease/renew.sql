select gov_handoff.gov_lease_renew(p_worker => $1, p_owner => $2, p_term => $3, p_report => $4)
