select gov_handoff.gov_handoff_probe()
