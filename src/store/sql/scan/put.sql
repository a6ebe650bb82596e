select judged, cleared
  from gov_handoff.gov_scan_put(
      p_worker => $1, p_owner => $2, p_term => $3, p_shard => $4, p_shards => $5, p_version => $6,
      g_key => $7, g_generation => $8, g_from_version => $9, g_from_mark => $10, g_from_key => $11, g_to_version => $12,
      g_to_mark => $13, g_to_key => $14, g_done => $15, g_verdict => $16, g_rule => $17, g_severity => $18,
      d_id => $19,
      o_key => $20, o_group => $21, o_generation => $22, o_was_group => $23, o_was => $24, o_counted => $25,
      o_verdict => $26, o_rule => $27, o_severity => $28,
      p_rows => $29, p_begins => $30, p_ends => $31)
