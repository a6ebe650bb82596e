select gov_handoff.gov_source_remove($1, $2)
