prepare transaction 'gov_handoff_selftest'
