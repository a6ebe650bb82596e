-- How many rows a backlog holds now, and its lowest and highest id. A backlog of other keys has no ids.
select (coalesce((select sum(r.hi::numeric - r.lo + 1) from public.gov_backlog_range r where r.boundary = $1), 0)
        + (select count(*) from public.gov_backlog_key k where k.boundary = $1))::bigint as held,
       (select r.lo from public.gov_backlog_range r where r.boundary = $1 order by r.lo limit 1) as lowest,
       (select r.hi from public.gov_backlog_range r where r.boundary = $1 order by r.lo desc limit 1) as highest
