select gov_handoff.gov_notices_retire($1::text::timestamptz, $2)
