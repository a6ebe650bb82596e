select gov_handoff.gov_finding_raise(p_kind => $1, p_key => $2, p_severity => $3, p_detail => $4, p_once => $5)
