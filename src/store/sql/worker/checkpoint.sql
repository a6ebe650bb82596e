select gov_handoff.gov_worker_checkpoint(p_worker => $1, p_owner => $2, p_term => $3)
