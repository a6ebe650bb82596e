-- What the connected role may do. Superusers are members of everything.
select r.rolname::text as role, r.rolsuper, r.rolreplication,
       exists (select from pg_roles w where w.rolname = 'gov_handoff_worker') as worker_role,
       array(select g.rolname::text from pg_roles g
              where g.rolname like 'gov\_handoff\_%' and pg_has_role(r.oid, g.oid, 'member') order by 1) as groups,
       (select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = 'gov_handoff' and p.proname in ('gov_handoff_apply', 'gov_lease_claim')
           and has_function_privilege(p.oid, 'execute')) = 2 as runs,
       has_database_privilege(current_database(), 'create') as creates
  from pg_roles r
 where r.rolname = current_user
