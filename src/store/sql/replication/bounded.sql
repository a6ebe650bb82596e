-- A publication locks each of its tables in turn and keeps the locks to its commit. While it waits for one table, a session
-- that wants to alter another waits behind it, and every birth waits behind that session. So it gives up soon.
begin;
set local lock_timeout = '500ms';
set local statement_timeout = '900ms';
