-- Who may create, besides its owner and superusers, in each schema that matters: that of the gates, of the governance tables and of
-- the sources. Roles are named as they were granted; their members may as well.
select n.nspname::text as schema, n.nspname = 'gov_handoff' as of_gates,
       array(select case when x.grantee = 0 then 'PUBLIC' else r.rolname::text end
               from aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
               left join pg_roles r on r.oid = x.grantee
              where x.privilege_type = 'CREATE' and x.grantee <> n.nspowner and not coalesce(r.rolsuper, false)
              order by 1) as creators
  from pg_namespace n
 where n.nspname in ('gov_handoff', 'public')
    or n.nspname in (select c.metadata ->> 'schema' from public.gov_worker_cursor c)
 order by 1
