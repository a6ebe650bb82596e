-- Every row of one case and how often it was captured, and every capture of the case that has no row.
with written as (
    select 'gov_handoff_selftest_int' as source, id::text as key from gov_handoff_selftest.births where label = $1
     union all
    select 'gov_handoff_selftest_uuid', id::text from gov_handoff_selftest.objects where label = $1
), captured as (
    select p.capture_payload ->> 'source' as source, p.capture_payload ->> 'source_key' as key, count(*) as n
      from public.event_pending p
     where p.event_domain = 'governance' and p.event_type_hint = 'governance.handoff.selftest' and p.processed_at is null
       and p.capture_payload ->> 'object_ref' = 'selftest:' || $1
     group by 1, 2
)
select coalesce(w.source, c.source) as source, coalesce(w.key, c.key) as key, w.key is not null as written,
       coalesce(c.n, 0) as captured
  from written w
  full join captured c on c.source = w.source and c.key = w.key
