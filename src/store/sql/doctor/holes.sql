-- Open ranges between the lowest and the highest id that was handed off. A range that reaches a bound of the type is
-- not one of them.
select g.source_name,
       count(*) filter (where w.hole) as open,
       count(*) filter (where w.hole and g.hot) as hot,
       coalesce(sum(g.hi::numeric - g.lo::numeric + 1) filter (where w.hole), 0)::bigint as ids,
       count(*) = 1 as unread
  from public.gov_worker_gap g
 cross join lateral (select g.lo not in (-2147483648, -9223372036854775808)
                        and g.hi not in (2147483647, 9223372036854775807) as hole) w
 where g.worker_name = $1
 group by g.source_name
 order by g.source_name
