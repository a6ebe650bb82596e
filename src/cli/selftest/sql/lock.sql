-- One selftest at a time in a database; the lock goes with the transaction.
select gov_handoff.gov_selftest_claim()
