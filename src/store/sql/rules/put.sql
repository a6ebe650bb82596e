select version, changed from gov_handoff.gov_rules_put(p_rules => $1, p_actor => $2)
