select gov_handoff.gov_handoff_apply_one(
    p_worker => $1, p_owner => $2, p_term => $3, p_captured_by => $4,
    r_source => $5, r_table => $6, r_kind => $7, r_change => $8, r_stream => $9, r_severity => $10,
    s_id => $11, s_ref => $12, s_object => $13, s_object_type => $14, s_object_ref => $15, s_address => $16,
    s_group => $17, s_key => $18, s_occurred => $19, s_system => $20, s_actor => $21,
    g_dims => $22,
    c_ts => $23, c_id => $24,
    l_slot => $25, l_lsn => $26,
    d_version => $27,
    s_number => $28)
