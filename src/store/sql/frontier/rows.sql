-- Every visible row whose inserting transaction is not older than the frontier. None lies before {first}: the same snapshot was
-- asked (scan.sql).
select {columns}
  from {table} t
 where t.ctid >={first}::tid and ({frontier}) and ({filter})
