select gov_handoff.gov_backlog_forget($1)
