-- The open range that holds an id: the last one that begins at or below it, if it reaches the id.
select g.lo, g.hi, g.hot, g.opened_at,
       not exists (select from public.gov_worker_gap n
                    where n.worker_name = $1 and n.source_name = $2 and n.lo > g.lo) as tail,
       not exists (select from public.gov_worker_gap n
                    where n.worker_name = $1 and n.source_name = $2 and n.lo < g.lo) as head
  from (select r.lo, r.hi, r.hot, r.opened_at
          from public.gov_worker_gap r
         where r.worker_name = $1 and r.source_name = $2 and r.lo <= $3
         order by r.lo desc
         limit 1) g
 where g.hi >= $3
