-- Whether a column identifies a row: it has a valid unique index of its own, over every row.
select exists (
    select from pg_index i
      join pg_class c on c.oid = i.indrelid
      join pg_namespace n on n.oid = c.relnamespace
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
     where n.nspname = $1 and c.relname = $2 and a.attname = $3
       and i.indisunique and i.indisvalid and i.indnkeyatts = 1 and i.indpred is null and i.indexprs is null)
