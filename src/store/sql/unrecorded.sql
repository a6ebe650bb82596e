-- What was captured and then refused by the outbox is not recorded: the retry lane has to try it again.
select u.id
  from unnest($1::uuid[]) as u (id)
 where not exists (select from public.event_outbox o where o.id = u.id)
   and not exists (select from public.event_pending p
                    where p.id = u.id and p.last_error is distinct from 'refused_by_outbox')
