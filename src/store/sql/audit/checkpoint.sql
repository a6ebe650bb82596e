select gov_handoff.gov_audit_checkpoint(
    p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_depth => $5, p_after => $6, p_progress => $7,
    p_anew => $8, p_verdict => $9, p_key => $10)
