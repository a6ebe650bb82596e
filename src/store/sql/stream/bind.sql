select gov_handoff.gov_stream_bind(
    p_worker => $1, p_owner => $2, p_term => $3, p_slot => $4, p_system => $5, p_timeline => $6, p_lsn => $7)
