select moved, refused from gov_handoff.gov_handoff_drain($1, $2, $3, $4, $5)
