-- The existing groups that became dirty since the last look, and the number of all existing groups. A new group does
-- not count. Nothing is counted while nothing is handed off.
select s.signals, clock_timestamp() as at, coalesce(g.dirtied, 0) as dirtied, coalesce(g.groups, 0) as groups
  from (select coalesce(sum(attempts_written), 0)::bigint as signals
          from public.gov_worker_cursor where worker_name = $1) s
  left join lateral (select count(*) filter (where c.dirtied_at >= $3) as dirtied, count(*) as groups
                       from public.gov_candidate_group c
                      where c.created_at < $3) g on s.signals <> $2
