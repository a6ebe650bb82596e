-- The next signals of the outbox in the order of their ids, and of these the ones that name the source: in their
-- payload, or as their subject if they name no other source. They are not selected by our identities, because a signal
-- that another program wrote would not have one. The last signal of the page is always returned, because the next page
-- begins after it. `twice`: the signal was retired and is recorded again. `key_retired`: every signal of the key was
-- retired.
select w.id, w.kind, w.source_key, w.object_ref, w.named,
       w.named and exists (select from public.gov_retired_signal r where r.id = w.id) as twice,
       w.named and w.source_key ~ '^-?[0-9]{1,19}$' and exists (
           select from public.gov_retired_range r where r.source_name = $1 and w.source_key::numeric between r.lo and r.hi) as key_retired
  from (select s.id, s.kind, s.source_key, s.object_ref, lead(s.id) over (order by s.id) is null as last,
               coalesce(s.handoff and (s.source = $1 or s.subject = $2 and not exists (
                   select from public.gov_worker_cursor c where c.source_name = s.source and c.metadata ? 'id')), false) as named
          from (select o.id, o.event_type as kind, o.safe_payload ->> 'source_key' as source_key, o.safe_payload ->> 'object_ref' as object_ref,
                       o.safe_payload ->> 'source' as source, o.event_subject_table as subject,
                       o.event_domain = 'governance' and o.event_type like 'governance.handoff.%'
                           -- Our own notices concern no row.
                           and (o.event_subject_ref is not null or o.safe_payload ? 'source_key') as handoff
                  from public.event_outbox o
                 where o.id {beyond} $3
                 order by o.id
                 limit $4) s) w
 where w.named or w.last
 order by w.id
