-- The signals that belong to a replaced row, each with whether its key is noted as reused. The recorded signal with the
-- same identity shows by its object which row it belongs to. The statement looks in the outbox first, then at captures,
-- then at retired signals. A retired signal is compared by time: a row written after its signals were recorded is
-- another row. If no such signal exists, a row whose key is noted as reused cannot use the key's own identity. Signals
-- from before the definition ($6 is its version) named rows as it does now may have named the same row differently, and
-- prove nothing.
select u.id, exists (select from public.gov_reused_key k where k.subject = u.subject) as noted
  from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::timestamptz[])
       as u (id, subject, object_ref, number, occurred)
 cross join (select v.named, v.source_name from public.gov_source_version v where v.version = $6::uuid) d
  left join public.event_outbox o on o.id = u.id
 where case when o.id is not null
            then o.safe_payload ->> 'object_ref' <> u.object_ref
                 and o.created_at >= (d.named -> o.event_type ->> 'since')::timestamptz
            else coalesce(
                 (select p.capture_payload ->> 'object_ref' <> u.object_ref
                         and (to_jsonb(p) ->> 'created_at')::timestamptz >= (d.named -> p.event_type_hint ->> 'since')::timestamptz
                    from public.event_pending p where p.id = u.id and p.processed_at is null),
                 (select coalesce(u.occurred > r.recorded_at, false) from public.gov_retired_signal r where r.id = u.id),
                 (select bool_or(coalesce(u.occurred > r.recorded_at, false)) from public.gov_retired_range r
                   where r.source_name = d.source_name and u.number between r.lo and r.hi),
                 -- In the backlog there was a row with this key. One that bears a later time than any row of its range, and
                 -- than the boundary, is another row.
                 (select case when g.hi >= u.number then coalesce(u.occurred > greatest(g.latest, b.taken_at), false) end
                    from public.gov_source_boundary b
                   cross join lateral (select x.hi, x.latest from public.gov_backlog_range x
                                        where x.boundary = b.boundary and x.lo <= u.number order by x.lo desc limit 1) g
                   where b.source_name = d.source_name and b.policy <> 'hand_off'),
                 exists (select from public.gov_reused_key k where k.subject = u.subject))
            end
