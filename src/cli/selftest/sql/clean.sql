select gov_handoff.gov_selftest_clean()
