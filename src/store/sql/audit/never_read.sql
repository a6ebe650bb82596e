-- Returns the integer keys that no pass has read: they are in an open range. If unused ids were certified away, or the
-- source has no ranges, a key outside the ranges proves nothing and counts as not read.
select u.number
  from unnest($3::bigint[]) as u (number)
 where exists (select from public.gov_worker_gap g
                where g.worker_name = $1 and g.source_name = $2 and u.number between g.lo and g.hi)
    or not exists (select from public.gov_worker_gap g where g.worker_name = $1 and g.source_name = $2)
    or exists (select from public.gov_worker_frontier f
                where f.worker_name = $1 and f.source_name = $2 and f.certified_away > 0)
