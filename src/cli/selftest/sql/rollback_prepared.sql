rollback prepared 'gov_handoff_selftest'
