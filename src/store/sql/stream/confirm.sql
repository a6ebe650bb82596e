select gov_handoff.gov_stream_confirm(p_worker => $1, p_owner => $2, p_term => $3, p_slot => $4, p_lsn => $5)
