select gov_handoff.gov_stream_bind($1, $2, $3, $4, $5, $6, $7)
