select gov_handoff.gov_frontier_advance($1, $2, $3, $4, $5::text::xid8, $6, $7, $8, $9, $10)
