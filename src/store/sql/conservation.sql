-- How many ids have left the open ranges and how many rows they have, in one snapshot. $3 and $4 are the type's bounds.
with ranges as materialized (
    select lo, hi from public.gov_worker_gap where worker_name = $1 and source_name = $2
), tail as (
    select lo from ranges where hi = $4::bigint
), away as (
    select coalesce((select f.certified_away from public.gov_worker_frontier f
                      where f.worker_name = $1 and f.source_name = $2), 0) as ids
)
select (($4::bigint::numeric - $3::bigint::numeric + 1)
           - (select coalesce(sum(hi::numeric - lo::numeric + 1), 0) from ranges) - (select ids from away))::bigint as handed_off,
       least((select ids from away), 9223372036854775807)::bigint as certified_away,
       (select count(*) from {table} t
         where (select lo from tail) is null or t.{id} < (select lo from tail)::{id_type})
           - (select coalesce(sum(h.n), 0)::bigint
                from ranges r
               cross join lateral (select count(*) as n from {table} t
                                    where t.{id} >= r.lo::{id_type} and t.{id} <= r.hi::{id_type}) h
               where r.hi <> $4::bigint) as rows,
       (select nullif(lo, $3::bigint) - 1 from tail) as highest_handed_off,
       (select max(t.{id})::bigint from {table} t) as highest
