-- The tables that the role does not own. It cannot add them to a publication.
select w.schema || '.' || w.name
  from unnest($1::text[], $2::text[]) as w (schema, name)
  join pg_namespace n on n.nspname = w.schema
  join pg_class c on c.relnamespace = n.oid and c.relname = w.name
 where not pg_has_role(c.relowner, 'usage')
 order by 1
