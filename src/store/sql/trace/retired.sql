-- When retention removed every signal of an integer key: the last range that begins at or below it, if it reaches it.
select r.recorded_at
  from (select x.hi, x.recorded_at from public.gov_retired_range x
         where x.source_name = $1 and x.lo <= $2 order by x.lo desc limit 1) r
 where r.hi >= $2
