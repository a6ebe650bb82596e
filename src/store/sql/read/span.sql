-- A stretch of the source in key order. Keyset, never OFFSET. `fresh`: not certified yet, so perhaps still on its way.
select ({fresh}) as fresh, {columns}
  from {table} t
 where ({after})
   and ({from})
   and ({to})
 order by t.{id}
 limit $1
