select gov_handoff.gov_backfill_page(
    p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_boundary => $5, p_phase => $6, p_place => $7,
    p_missing => $8, p_rows => $9, p_refused => $10, p_begins => $11, p_ends => $12, p_certificate => $13,
    d_version => $14,
    o_key => $15, o_kind => $16, o_type => $17, o_address => $18, o_group => $19, o_dims => $20, o_occurred => $21)
