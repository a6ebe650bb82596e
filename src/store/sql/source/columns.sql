-- The columns of a table with their types, bare and as declared, and whether we may read each. Also whether we may read
-- the system columns xmin and ctid, which a grant on columns does not include.
select a.attname, format_type(a.atttypid, null) as type, format_type(a.atttypid, a.atttypmod) as declared,
       has_column_privilege(c.oid, a.attnum, 'select') as readable, c.relkind = 'p' as partitioned,
       a.attnotnull as not_null, exists (select from pg_inherits h where h.inhparent = c.oid) as inherited,
       has_column_privilege(c.oid, 'xmin', 'select') and has_column_privilege(c.oid, 'ctid', 'select') as provable
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')
 order by a.attnum
