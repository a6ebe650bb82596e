-- What the tables say, asked without any of the product's functions: every row of the sources against every handoff.
-- The changelog's rules are written out here a second time, on purpose.
with expected as (
    select 'birth_registry' as source, b.id::text as key, k.kind
      from public.birth_registry as b
     cross join lateral (values ('object_born'), (case when b.status = 'registered' then 'object_registered' end)) as k (kind)
     where k.kind is not null
    union all
    select 'registry_changelog', c.id::text, k.kind
      from public.registry_changelog as c
     cross join lateral (
        select m.kind
          from (values
            ('object_registered', c.action = 'register'),
            ('collection_changed', c.entity_type = 'collection'),
            ('count_changed', c.action in ('count_changed', 'recount')),
            ('object_retired', c.action in ('retire', 'supersede')),
            ('source_changed', c.action in ('source_changed', 'migrate')),
            ('axis_introduced', c.entity_type in ('axis', 'pivot')),
            ('policy_changed', c.entity_type in ('law', 'policy', 'normative', 'jurisdiction', 'measurement')),
            ('authority_changed', c.entity_type in ('owner', 'approval', 'exception')),
            ('ruleset_changed', c.entity_type = 'ruleset')) as m (kind, matches)
         where m.matches
        union all
        select 'unmapped'
         where c.action not in ('register', 'count_changed', 'recount', 'retire', 'supersede', 'source_changed', 'migrate')
           and c.entity_type not in ('collection', 'axis', 'pivot', 'law', 'policy', 'normative', 'jurisdiction',
                                     'measurement', 'owner', 'approval', 'exception', 'ruleset')) as k
     where c.source_system is distinct from 'gov-handoff'
),
recorded as (
    select safe_payload ->> 'source' as source, safe_payload ->> 'source_key' as key,
           replace(event_type, 'governance.handoff.', '') as kind, safe_payload ->> 'captured_by' as captured_by
      from public.event_outbox
     where event_domain = 'governance' and event_type like 'governance.handoff.%'
    union all
    select capture_payload ->> 'source', capture_payload ->> 'source_key',
           replace(event_type_hint, 'governance.handoff.', ''), capture_payload ->> 'captured_by'
      from public.event_pending
     where event_domain = 'governance' and processed_at is null
),
handed as (
    select source, key, kind, count(*) as times
      from recorded
     where source in ('birth_registry', 'registry_changelog') and captured_by is not null
     group by source, key, kind
),
compared as (
    select e.key is not null as born, coalesce(h.times, 0) as times
      from expected as e
      full join handed as h using (source, key, kind)
)
select (select count(*) from public.birth_registry) as births,
       (select count(*) from public.registry_changelog where source_system is distinct from 'gov-handoff') as changes,
       (select count(*) from expected) as due,
       (select count(*) from compared where born and times > 0) as handed_off,
       (select count(*) from compared where born and times = 0) as missing,
       (select coalesce(sum(times - 1), 0)::bigint from compared where times > 1) as twice,
       (select count(*) from compared where not born) as unborn,
       (select count(*) from recorded where captured_by = 'stream') as by_stream,
       (select count(*) from recorded where captured_by = 'poll') as by_poll,
       (select count(*) from recorded where captured_by in ('reconcile', 'certify')) as by_reconcile
