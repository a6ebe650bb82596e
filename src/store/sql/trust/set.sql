select changed, promoted from gov_handoff.gov_trust_set(
    p_worker => $1, p_source => $2, p_producer => $3, p_trusted => $4, p_actor => $5)
