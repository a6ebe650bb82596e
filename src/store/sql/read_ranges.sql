-- One statement, so one snapshot, over the open ranges and the rows in them. Each probe is an index scan of the key; the
-- tail is just the range that reaches the end of the type.
select g.lo, g.hi, s.*
  from public.gov_worker_gap g
 cross join lateral (
       select {columns}
         from {table} t
        where t.{id} >= g.lo::{id_type} and t.{id} <= g.hi::{id_type}
        order by t.{id}
        limit $3
       ) s
 where g.worker_name = $1 and g.source_name = $2 {hot}
 order by g.lo
 limit $3
