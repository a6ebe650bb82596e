select gov_handoff.gov_outbox_retire($1, $2::text::timestamptz, $3)
