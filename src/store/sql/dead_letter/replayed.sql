select gov_handoff.gov_dead_letter_replayed(
    p_worker => $1, p_owner => $2, p_term => $3, p_id => $4, p_signals => $5, p_reason => $6, p_actor => $7)
