select gov_handoff.gov_backlog_stage(p_boundary => $1, p_lo => $2, p_hi => $3, p_latest => $4, p_subject => $5)
