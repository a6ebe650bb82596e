-- Signals that are recorded nowhere: not emitted, captured, staged, dead-lettered or retired. A replayed letter does
-- not count: its signals are in the outbox, or missing. A drained capture does not count either: it only remembers that
-- its groups were marked. If a row was written after the last failure of a letter with its key, the row replaced
-- another one and the letter does not count. A row with a time in the future says nothing about that.
select u.id
  from unnest($2::uuid[], $3::text[], $4::bigint[], $5::uuid[], $6::timestamptz[]) as u (id, letter, number, staged, occurred)
 where not exists (select from public.event_outbox o where o.id = u.id)
   and not exists (select from public.event_pending p where p.id = u.id and p.processed_at is null)
   and not exists (select from public.event_pending p
                    where p.id = u.staged and p.event_type_hint = 'governance.handoff.retry' and p.processed_at is null)
   and not exists (select from public.iu_route_dead_letter d
                    where d.event_domain = 'governance' and d.idempotency_key = u.letter
                      and d.resolution is distinct from 'replayed'
                      and not coalesce(u.occurred > d.last_failed_at and u.occurred <= clock_timestamp(), false))
   and not exists (select from public.gov_retired_signal r where r.id = u.id)
   and not exists (select from public.gov_retired_range r
                    where r.source_name = $1 and u.number between r.lo and r.hi)
