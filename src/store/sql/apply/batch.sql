select emitted, captured
  from gov_handoff.gov_handoff_apply(
      p_worker => $1, p_owner => $2, p_term => $3, p_captured_by => $4,
      r_source => $5, r_table => $6, r_kind => $7, r_stream => $8, r_severity => $9, r_bumps => $10,
      s_id => $11, s_ref => $12, s_rule => $13, s_flag => $14, s_object => $15, s_object_type => $16,
      s_object_ref => $17, s_address => $18, s_group => $19, s_key => $20, s_number => $21, s_occurred => $22,
      s_system => $23, s_actor => $24, s_scope => $25,
      g_key => $26, g_dims => $27, g_latest => $28, g_reason => $29, g_count => $30,
      c_source => $31, c_ts => $32, c_id => $33, c_seen => $34, c_signals => $35,
      x_source => $36, x_closed_lo => $37, x_closed_hi => $38, x_open_lo => $39, x_open_hi => $40,
      l_slot => $41, l_lsn => $42, d_version => $43)
