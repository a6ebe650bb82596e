-- The leading columns of the valid indexes of a table, primary and unique ones first.
select i.indisprimary, i.indisunique, i.indpred is not null as partial,
       array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k (attnum, n)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum order by k.n) as columns
  from pg_index i
  join pg_class c on c.oid = i.indrelid
  join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1 and c.relname = $2 and i.indisvalid
 order by i.indisprimary desc, i.indisunique desc
