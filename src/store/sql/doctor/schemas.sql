-- The roles that may create objects, besides the owner and superusers, in each relevant schema: of the gates, of the
-- governance tables and of the sources. The roles are those named in the grants; their members may create objects as
-- well.
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
