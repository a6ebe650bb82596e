select gov_handoff.gov_stream_confirm($1, $2, $3, $4, $5)
