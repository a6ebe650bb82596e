select gov_handoff.gov_audit_checkpoint($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
