-- Every visible row whose inserting transaction is not older than the frontier. No such row lies before {first}:
-- scan.sql found that in the same snapshot.
select {columns}
  from {table} t
 where t.ctid >={first}::tid and ({frontier}) and ({filter})
