-- The groups dirtied since the last look, of all; nothing is counted while nothing was handed off.
select s.signals, clock_timestamp() as at,
       case when s.signals <> $2 then (select count(*) from public.gov_candidate_group where dirtied_at >= $3) else 0 end as dirtied,
       case when s.signals <> $2 then (select count(*) from public.gov_candidate_group) else 0 end as groups
  from (select coalesce(sum(attempts_written), 0)::bigint as signals
          from public.gov_worker_cursor where worker_name = $1) s
