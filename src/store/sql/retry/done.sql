select gov_handoff.gov_retry_done(p_worker => $1, p_owner => $2, p_term => $3, p_id => $4, p_signals => $5)
