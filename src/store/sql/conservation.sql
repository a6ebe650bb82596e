-- How many ids have left the open ranges and how many rows they have, in one snapshot. $3 and $4 are the type's bounds. While a
-- key is being widened the ranges may be those of another type, and then the difference is no count and has no bounds.
with ranges as materialized (
    select lo, hi from public.gov_worker_gap where worker_name = $1 and source_name = $2
), tail as (
    select lo from ranges where hi = $4::bigint
), away as (
    select coalesce((select f.certified_away from public.gov_worker_frontier f
                      where f.worker_name = $1 and f.source_name = $2), 0) as ids
)
select greatest(least(($4::bigint::numeric - $3::bigint::numeric + 1)
                          - (select coalesce(sum(hi::numeric - lo::numeric + 1), 0) from ranges) - (select ids from away),
                      9223372036854775807), 0)::bigint as handed_off,
       least((select ids from away), 9223372036854775807)::bigint as certified_away,
       (select count(*) from {table} t
         where (select lo from tail) is null or t.{id} < (select lo from tail))
           - (select coalesce(sum(h.n), 0)::bigint
                from ranges r
               cross join lateral (select count(*) as n from {table} t
                                    where t.{id} >= r.lo and t.{id} <= r.hi) h
               where r.hi <> $4::bigint) as rows,
       (select nullif(lo, $3::bigint) - 1 from tail) as highest_handed_off,
       (select max(t.{id})::bigint from {table} t) as highest
