-- One statement, so one snapshot, over the open ranges and the rows in them. Each probe is an index scan of the key; the
-- tail is just the range that reaches the end of the type, perhaps of a wider one than the definition's, when that was changed
-- a moment ago: then only what it can name is read (and nothing is cast, which would fail; the index serves either type). What is read ahead of a commit starts after its last id.
select g.lo, g.hi, s.*
  from public.gov_worker_gap g
 cross join lateral (
       select {columns}
         from {table} t
        where t.{id} >= greatest(g.lo, $4, {lowest}) and t.{id} <= least(g.hi, {highest})
        order by t.{id}
        limit $3
       ) s
 where g.worker_name = $1 and g.source_name = $2 and g.hi >= $4 {hot}
 order by g.lo
 limit $3
