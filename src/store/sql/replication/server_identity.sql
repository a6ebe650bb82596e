-- Which server this is, since when it runs, and which of its databases: what two sessions that reach the same have in common, and
-- two that reach a primary and its copy have not.
select concat_ws(' ', (select system_identifier from pg_control_system()), pg_postmaster_start_time(), current_database())
