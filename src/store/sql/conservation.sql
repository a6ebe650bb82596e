-- How many ids of one stretch were handed off and how many rows they have, in one snapshot. $3 and $4 are the type's bounds;
-- the ids between the first and the last that left the open ranges are cut into $6 stretches of the same length, of which
-- this is number $5. How many ids were certified away is known, but not where: if any were, the first stretch is all of
-- them and the others are empty. While a key is being widened the ranges may be
-- those of another type, and then the difference is no count and has no bounds.
with ranges as materialized (
    select lo, hi from public.gov_worker_gap where worker_name = $1 and source_name = $2
), tail as (
    select lo from ranges where hi = $4::bigint
), away as (
    select coalesce((select f.certified_away from public.gov_worker_frontier f
                      where f.worker_name = $1 and f.source_name = $2), 0) as ids
), ends as (
    select coalesce((select hi::numeric + 1 from ranges where lo = $3::bigint and hi < $4::bigint), $3::bigint) as first,
           coalesce((select lo::numeric - 1 from tail), $4::bigint) as last,
           case when (select ids from away) = 0 then $6::int else 1 end as parts
), cut as (
    select first + floor((last - first + 1) * least($5::int, parts) / parts) as lo,
           first + floor((last - first + 1) * least($5::int + 1, parts) / parts) - 1 as hi
      from ends
), stretch as (
    -- An empty one begins behind its end, which may be beyond the type.
    select least(lo, $4::bigint)::bigint as lo, greatest(hi, $3::bigint)::bigint as hi, lo <= hi as some from cut
), open as (
    select greatest(r.lo, s.lo) as lo, least(r.hi, s.hi) as hi
      from ranges r, stretch s
     where s.some and r.lo <= s.hi and r.hi >= s.lo
)
select s.lo, s.hi,
       case when s.some
            then greatest(least(s.hi::numeric - s.lo + 1 - (select coalesce(sum(hi::numeric - lo + 1), 0) from open)
                                    - (select ids from away), 9223372036854775807), 0) else 0 end::bigint as handed_off,
       least((select ids from away), 9223372036854775807)::bigint as certified_away,
       (select count(*) from {table} t
         where s.some and t.{id} >= (select lo from stretch) and t.{id} <= (select hi from stretch))
           - (select coalesce(sum(h.n), 0)::bigint
                from open o
               cross join lateral (select count(*) as n from {table} t
                                    where t.{id} >= o.lo and t.{id} <= o.hi) h) as rows,
       (select nullif(lo, $3::bigint) - 1 from tail) as highest_handed_off,
       (select max(t.{id})::bigint from {table} t) as highest
  from stretch s
