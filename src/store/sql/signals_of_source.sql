-- The recorded signals of one source in the order of their identities, which begin with the source's tag.
select s.id, s.source_key
  from (select o.id, o.safe_payload ->> 'source_key' as source_key, o.safe_payload ->> 'source' as source
          from public.event_outbox o
         where o.id > $2 and o.id <= $3 and o.event_domain = 'governance' and o.event_subject_ref is not null
         union all
        select p.id, p.capture_payload ->> 'source_key', p.capture_payload ->> 'source'
          from public.event_pending p
         where p.id > $2 and p.id <= $3 and p.event_domain = 'governance' and p.entity_ref is not null
           -- What is staged for a retry is no signal yet.
           and p.processed_at is null and p.event_type_hint is distinct from 'governance.handoff.retry') s
 where s.source = $1
 order by s.id
 limit $4
