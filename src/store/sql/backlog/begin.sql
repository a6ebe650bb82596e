select gov_handoff.gov_backlog_begin($1)
