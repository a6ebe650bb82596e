select t.ctid::text as place, {columns}
  from {table} t
 where t.ctid = any ($1::text[]::tid[])
