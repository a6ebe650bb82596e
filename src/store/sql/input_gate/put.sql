select gov_handoff.gov_input_put(
    p_worker => $1, p_owner => $2, p_term => $3,
    o_key => $4, o_source => $5, o_source_key => $6, o_conflict => $7, o_reason => $8,
    r_id => $9, r_to => $10, r_done => $11, p_begins => $12, p_ends => $13)
