-- The signals with these ids and, for an integer key, those between two ids: all identities of such a key are neighbours.
-- A key that was reused has signals of more than one row; all are of this key.
select o.id, o.event_type, o.canonical_address, o.safe_payload ->> 'group_key' as group_key,
       o.safe_payload ->> 'captured_by' as captured_by, o.safe_payload ->> 'object_ref' as object_ref,
       o.created_at, o.xmin::text::bigint as writer,
       (select f.pos from public.event_feed f where f.event_id = o.id) as pos
  from (select u.id from unnest($1::uuid[]) as u (id)
         union
        select x.id from public.event_outbox x where x.id between $2::uuid and $3::uuid) k
  join public.event_outbox o on o.id = k.id
 where o.event_domain = 'governance' and o.safe_payload ->> 'source_key' = $4
 order by o.created_at, o.event_type
