select exists (select from pg_prepared_xacts where gid = 'gov_handoff_selftest' and database = current_database())
