-- The registers that excuse rows of a source from having signals, where they are not what the gates made of them. Each amounts
-- to a number and a sum, which the gates write in the commits that change it (gov_backlog_stage, gov_retired_total). All of it
-- is one statement, and so one snapshot: a gate that changes a register meanwhile is seen whole or not at all.
select 'backlog' as register
  from public.gov_source_boundary b
 cross join lateral (
       select coalesce(sum(x.n), 0) as n, coalesce(sum(x.total), 0) as total
         from (select r.hi::numeric - r.lo + 1, (r.lo::numeric + r.hi) * (r.hi::numeric - r.lo + 1)
                 from public.gov_backlog_range r where r.boundary = b.boundary
                union all
               select 1, ('x' || right(k.subject::text, 12))::bit(48)::bigint
                 from public.gov_backlog_key k where k.boundary = b.boundary) x (n, total)) held
 where b.source_name = $1 and b.policy <> 'hand_off' and (b.held <> held.n or b.held_sum <> held.total)
 union all
select 'retired'
  from (select coalesce(sum(t.keys), 0) as n, coalesce(sum(t.key_sum), 0) as total
          from public.gov_retired_total t where t.source_name = $1) noted,
       (select coalesce(sum(r.hi::numeric - r.lo + 1), 0) as n,
               coalesce(sum((r.lo::numeric + r.hi) * (r.hi::numeric - r.lo + 1)), 0) as total
          from public.gov_retired_range r where r.source_name = $1) keys,
       -- The mark of a signal excuses it whatever source the mark names. Those that name no registered source are everybody's.
       (select coalesce(sum(t.signals), 0) as n, coalesce(sum(t.signal_sum), 0) as total
          from public.gov_retired_total t
         where t.source_name = $1
            or not exists (select from public.gov_worker_cursor c where c.source_name = t.source_name and c.metadata ? 'id')) noted_signals,
       (select count(*) as n,
               coalesce(sum(('x' || right(s.id::text, 12))::bit(48)::bigint & 4398046511103), 0) as total
          from public.gov_retired_signal s
         where s.source_name = $1
            or not exists (select from public.gov_worker_cursor c where c.source_name = s.source_name and c.metadata ? 'id')) signals
 where keys.n <> noted.n or keys.total <> noted.total or signals.n <> noted_signals.n or signals.total <> noted_signals.total
