-- Events that were written since the frontier and have no position. No such event lies before {first} in the file:
-- frontier/scan.sql found that in the same snapshot.
select t.id
  from public.event_outbox t
 where t.ctid >= {first}::tid and ({frontier})
   and not exists (select from public.event_feed f where f.event_id = t.id)
 limit {limit}
