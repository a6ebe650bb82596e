-- As outbox_stretch.sql, for captures. A staged row is not a signal yet. `twice`: the signal is in the outbox as well.
select w.id, w.kind, w.source_key, w.object_ref, w.named,
       w.named and exists (select from public.event_outbox o where o.id = w.id) as twice, false as key_retired
  from (select s.id, s.kind, s.source_key, s.object_ref, lead(s.id) over (order by s.id) is null as last,
               coalesce(s.handoff and (s.source = $1 or s.subject = $2 and not exists (
                   select from public.gov_worker_cursor c where c.source_name = s.source and c.metadata ? 'id')), false) as named
          from (select p.id, coalesce(p.event_type_hint, '') as kind, p.capture_payload ->> 'source_key' as source_key, p.capture_payload ->> 'object_ref' as object_ref,
                       p.capture_payload ->> 'source' as source, p.entity_table as subject,
                       p.event_domain = 'governance' and p.event_type_hint like 'governance.handoff.%'
                           and p.event_type_hint <> 'governance.handoff.retry'
                           and (p.entity_ref is not null or p.capture_payload ? 'source_key') as handoff
                  from public.event_pending p
                 where p.id {beyond} $3 and p.processed_at is null
                 order by p.id
                 limit $4) s) w
 where w.named or w.last
 order by w.id
