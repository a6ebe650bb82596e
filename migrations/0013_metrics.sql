-- What metrics are read from: totals that outlive certificates and daemons, and what waits, at a bounded cost.

create view public.v_governance_repair as
select worker_name, source_name, reason, repaired from public.gov_repair_total;

-- What waits, by type. Types ship inactive, so millions may wait, and somebody looks every few seconds: each type is counted to
-- ten thousand and no further, and the types themselves are found by leaping along the index of what is open.
create view public.v_governance_captured as
with recursive hint (event_type) as (
    (select p.event_type_hint from public.event_pending p
      where p.processed_at is null and p.event_type_hint is not null
      order by p.event_type_hint limit 1)
    union all
    select (select p.event_type_hint from public.event_pending p
             where p.processed_at is null and p.event_type_hint > h.event_type
             order by p.event_type_hint limit 1)
      from hint h where h.event_type is not null
)
select h.event_type, n.waiting
  from hint h
 cross join lateral (select count(*) as waiting
                       from (select from public.event_pending p
                              where p.processed_at is null and p.event_type_hint = h.event_type
                                and p.event_domain = 'governance'
                              limit 10000) few) n
 where h.event_type is not null and n.waiting > 0;

grant select, insert, update on public.gov_repair_total to gov_handoff_owner;
grant select on public.v_governance_repair, public.v_governance_captured
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
