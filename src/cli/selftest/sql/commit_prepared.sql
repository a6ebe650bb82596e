commit prepared 'gov_handoff_selftest'
