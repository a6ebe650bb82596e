drop schema if exists gov_handoff_selftest cascade
