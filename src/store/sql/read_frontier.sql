-- Every visible row whose inserting transaction is not older than the frontier, whatever its key or timestamp.
select {columns}
  from {table} t
 where ({frontier}) and ({filter})
