-- A capture that was drained records nothing any more: its signal is in the outbox, or missing.
select u.id
  from unnest($1::uuid[]) as u (id)
 where not exists (select from public.event_outbox o where o.id = u.id)
   and not exists (select from public.event_pending p where p.id = u.id and p.processed_at is null)
