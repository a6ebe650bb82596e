-- A page of the source in key order, by keyset and never by OFFSET. `fresh`: not certified yet, so another path may
-- still bring it.
select ({fresh}) as fresh, {columns}
  from {table} t
 where ({after})
   and ({from})
   and ({to})
 order by t.{id}
 limit $1
