-- The ranges of a backlog that reach into a stretch of ids, in order.
select r.lo, r.hi from public.gov_backlog_range r
 where r.boundary = $1 and r.lo <= $3
   and r.lo >= coalesce((select x.lo from public.gov_backlog_range x where x.boundary = $1 and x.lo <= $2
                          order by x.lo desc limit 1), $2)
   and r.hi >= $2
 order by r.lo
