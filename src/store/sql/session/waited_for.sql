-- Whether another session waits for a table that this process has locked. Neither the function nor the view needs a
-- privilege.
select exists (select from pg_locks w
                where not w.granted and w.locktype = 'relation'
                  and w.database = (select d.oid from pg_database d where d.datname = current_database())
                  and $1::int = any (pg_blocking_pids(w.pid)))
