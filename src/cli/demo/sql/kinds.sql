select replace(h.kind, 'governance.handoff.', '') as kind, h.captured_by, count(*) as n
  from (select event_type as kind, safe_payload ->> 'captured_by' as captured_by
          from public.event_outbox
         where event_domain = 'governance'
        union all
        select event_type_hint, capture_payload ->> 'captured_by'
          from public.event_pending
         where event_domain = 'governance' and processed_at is null) as h
 where h.captured_by is not null
 group by h.kind, h.captured_by
