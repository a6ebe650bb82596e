-- A capture that was drained records nothing any more: its signal is in the outbox, or missing. Nor does one that the outbox
-- refused: the retry lane has to try it again.
select u.id
  from unnest($1::uuid[]) as u (id)
 where not exists (select from public.event_outbox o where o.id = u.id)
   and not exists (select from public.event_pending p
                    where p.id = u.id and p.processed_at is null and p.last_error is distinct from 'refused_by_outbox')
