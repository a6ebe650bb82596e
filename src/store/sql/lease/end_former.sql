-- Ends the sessions that a former lease holder left behind, if they belong to the current role. The application name of
-- each ends with the last twelve characters of the holder's name. The sessions are selected before any is ended,
-- because the server evaluates the conditions of one WHERE clause in any order.
with theirs as materialized (
    select a.pid, a.application_name from pg_stat_activity a
     where a.datname = current_database() and a.pid <> pg_backend_pid()
       and a.usesysid = (select s.usesysid from pg_stat_get_activity(pg_backend_pid()) s)
       and a.application_name like 'gov-handoff %' and length($1::text) > 12
       and right(a.application_name, 13) = ' ' || right($1::text, 12)
)
select t.application_name from theirs t where pg_terminate_backend(t.pid)
