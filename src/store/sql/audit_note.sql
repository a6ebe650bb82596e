select gov_handoff.gov_audit_note($1, $2, $3, $4, $5)
