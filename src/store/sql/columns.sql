-- What the catalogue says of a table: its columns with types, bare and as declared, and whether we may read each.
select a.attname, format_type(a.atttypid, null) as type, format_type(a.atttypid, a.atttypmod) as declared,
       has_column_privilege(c.oid, a.attnum, 'select') as readable, c.relkind = 'p' as partitioned
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')
 order by a.attnum
