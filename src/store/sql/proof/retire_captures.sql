select gov_handoff.gov_pending_retire($1::text::timestamptz, $2)
