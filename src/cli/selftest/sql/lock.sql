-- One selftest at a time in a database; the lock goes with the session.
select pg_try_advisory_lock(6748001, 6)
