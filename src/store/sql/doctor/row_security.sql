-- The tables on which row security would hide rows from this role.
select w.schema || '.' || w.name
  from unnest($1::text[], $2::text[]) as w (schema, name)
  join pg_namespace n on n.nspname = w.schema
  join pg_class c on c.relnamespace = n.oid and c.relname = w.name
 where row_security_active(c.oid)
 order by 1
