-- Captures and the staged row among these ids, as `signals` finds them.
select p.id, p.event_type_hint as kind, p.canonical_address, p.last_error, p.error_count, p.processed_at,
       p.capture_payload ->> 'group_key' as group_key, p.capture_payload ->> 'captured_by' as captured_by,
       p.capture_payload ->> 'source_system' as source_system, p.capture_payload ->> 'actor_ref' as actor_ref,
       (to_jsonb(p) ->> 'created_at')::timestamptz as created_at,
       coalesce(to_jsonb(p) ->> 'process_after', p.capture_payload ->> 'process_after')::timestamptz as next_attempt_at
  from (select u.id from unnest($1::uuid[]) as u (id)
         union
        select x.id from public.event_pending x where x.id between $2::uuid and $3::uuid) k
  join public.event_pending p on p.id = k.id
 where p.event_domain = 'governance'
 order by p.event_type_hint
