select moved, refused from gov_handoff.gov_handoff_drain(
    p_worker => $1, p_owner => $2, p_term => $3, p_type => $4, p_limit => $5)
