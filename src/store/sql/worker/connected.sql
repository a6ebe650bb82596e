-- Whether a session of this owner of a lease is connected: its name ends in the last twelve characters of the owner's.
select exists (select from pg_stat_activity a
                where a.datname = current_database() and right(a.application_name, 13) = ' ' || right($1, 12))
