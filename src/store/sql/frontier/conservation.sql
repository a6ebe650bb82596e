-- The number of ids that were handed off and the number of their rows, in one snapshot. $3 and $4 are the bounds of the
-- type. $5 is the number of all rows; the rows in open ranges are few and are counted by the key. While the type of a
-- key is being widened, the ranges may belong to the other type. Then the difference is not a count and has no bounds.
with ranges as materialized (
    select lo, hi from public.gov_worker_gap where worker_name = $1 and source_name = $2
), away as (
    select coalesce((select f.certified_away from public.gov_worker_frontier f
                      where f.worker_name = $1 and f.source_name = $2), 0) as ids
)
select greatest(least($4::bigint::numeric - $3::bigint + 1 - a.ids
                          - (select coalesce(sum(r.hi::numeric - r.lo + 1), 0) from ranges r),
                      9223372036854775807), 0)::bigint as handed_off,
       least(a.ids, 9223372036854775807)::bigint as certified_away,
       $5::bigint - (select coalesce(sum(h.n), 0)::bigint
                       from ranges r
                      cross join lateral (select count(*) as n from {table} t
                                           where t.{id} >= r.lo and t.{id} <= r.hi) h) as rows,
       (select nullif(r.lo, $3::bigint) - 1 from ranges r where r.hi = $4::bigint) as highest_handed_off,
       (select max(t.{id})::bigint from {table} t) as highest
  from away a
