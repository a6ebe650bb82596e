-- Signals that are nowhere: not emitted, not captured, not dead-lettered, not removed by retention.
select u.id
  from unnest($2::uuid[], $3::text[], $4::bigint[]) as u (id, key, number)
 where not exists (select from public.event_outbox o where o.id = u.id)
   and not exists (select from public.event_pending p where p.id = u.id)
   and not exists (select from public.iu_route_dead_letter d
                    where d.event_domain = 'governance' and d.idempotency_key = $1 || ':' || u.key)
   and not exists (select from public.gov_retired_signal r where r.id = u.id)
   and not exists (select from public.gov_retired_range r
                    where r.source_name = $1 and u.number between r.lo and r.hi)
