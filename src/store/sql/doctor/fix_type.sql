select gov_handoff.gov_type_set_active({type}, true);
