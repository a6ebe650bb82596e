-- One statement, and so one snapshot, over the open ranges and the rows in them. Each probe is an index scan of the
-- key. The tail is the range that reaches the end of the type. Just after the type of a key was changed, the tail may
-- be that of a wider type. Then the statement reads only ids that the definition's type can hold. It casts nothing,
-- because a cast would fail; the index serves either type. A read that runs ahead of a commit starts after the last id
-- of that batch.
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
