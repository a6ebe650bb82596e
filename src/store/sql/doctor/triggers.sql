-- Triggers of other owners on tables that the gates write to. Their functions run with the privileges of the gates'
-- owner. So it matters who owns a function, and that it sets its own search_path, because the gates search only
-- pg_catalog.
select c.relname::text as table, t.tgname::text as trigger, p.oid::regprocedure::text as function, o.rolname::text as owner,
       (select w.rolname::text from pg_roles w where w.oid = c.relowner) as table_owner,
       o.rolsuper or p.proowner = c.relowner as trusted,
       p.prosqlbody is not null or l.lanname in ('internal', 'c')
       or exists (select from unnest(p.proconfig) s where s like 'search_path=%') as pinned
  from pg_trigger t
  join pg_class c on c.oid = t.tgrelid
  join pg_proc p on p.oid = t.tgfoid
  join pg_language l on l.oid = p.prolang
  join pg_roles o on o.oid = p.proowner
  join pg_roles g on g.rolname = 'gov_handoff_owner'
 where not t.tgisinternal and t.tgenabled <> 'D'
   and p.pronamespace <> (select oid from pg_namespace where nspname = 'gov_handoff')
   and (has_table_privilege(g.oid, c.oid, 'insert') or has_any_column_privilege(g.oid, c.oid, 'update')
        or has_table_privilege(g.oid, c.oid, 'delete'))
 order by 1, 2
