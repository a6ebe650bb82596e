select gov_handoff.gov_audit_finish($1, $2, $3, $4, $5, $6, $7, $8)
