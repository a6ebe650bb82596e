select changed, promoted from gov_handoff.gov_trust_set($1, $2, $3, $4, $5)
