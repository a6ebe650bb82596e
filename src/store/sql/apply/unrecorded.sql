-- A drained capture does not count as recorded: its signal is in the outbox, or missing. A capture that the outbox
-- rejected does not count either: the retry lane has to retry it.
select u.id
  from unnest($1::uuid[]) as u (id)
 where not exists (select from public.event_outbox o where o.id = u.id)
   and not exists (select from public.event_pending p
                    where p.id = u.id and p.processed_at is null and p.last_error is distinct from 'refused_by_outbox')
