-- Identifies the server, its start time and the database. The answer is equal in two sessions that reach the same
-- server. It differs between a primary and its copy.
select concat_ws(' ', (select system_identifier from pg_control_system()), pg_postmaster_start_time(), current_database())
