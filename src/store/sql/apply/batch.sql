select emitted, captured
  from gov_handoff.gov_handoff_apply(
    p_worker => $1, p_owner => $2, p_term => $3, p_captured_by => $4,
    r_source => $5, r_table => $6, r_kind => $7, r_stream => $8, r_severity => $9, r_bumps => $10,
    s_id => $11, s_ref => $12, s_rule => $13, s_flag => $14, s_object => $15, s_object_type => $16,
    s_object_ref => $17, s_address => $18, s_group => $19, s_key => $20, s_occurred => $21, s_system => $22,
    s_actor => $23, s_scope => $24,
    g_key => $25, g_dims => $26, g_latest => $27, g_reason => $28, g_count => $29,
    c_source => $30, c_ts => $31, c_id => $32, c_seen => $33, c_signals => $34,
    x_source => $35, x_closed_lo => $36, x_closed_hi => $37, x_open_lo => $38, x_open_hi => $39,
    l_slot => $40, l_lsn => $41,
    d_version => $42,
    s_number => $43)
