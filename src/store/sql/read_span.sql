-- A stretch of the source in key order, for replay. Keyset, never OFFSET.
select {columns}
  from {table} t
 where ({after})
   and ({from})
   and ({to})
 order by t.{id}
 limit $1
