select gov_handoff.gov_audit_finish(
    p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_depth => $5, p_progress => $6,
    p_cursor_worker => $7, p_certificate => $8, p_version => $9)
