-- Those of these signals that are recorded for another row: the key is the same, what it is about is not. Signals from before
-- the definition mapped rows as it does now ($5 is its version) may have named the same row otherwise, and prove nothing. What
-- retention took is compared by time: a row that came to be after its signals had been removed is another one.
select u.id
  from unnest($1::uuid[], $2::text[], $3::bigint[], $4::timestamptz[]) as u (id, object_ref, number, occurred)
 cross join (select v.mapped_since, v.source_name from public.gov_source_version v where v.version = $5::uuid) d
 where exists (select from public.event_outbox o
                where o.id = u.id and o.safe_payload ->> 'object_ref' <> u.object_ref and o.created_at >= d.mapped_since)
    or exists (select from public.event_pending p
                where p.id = u.id and p.processed_at is null and p.capture_payload ->> 'object_ref' <> u.object_ref
                  and (to_jsonb(p) ->> 'created_at')::timestamptz >= d.mapped_since)
    or exists (select from public.gov_retired_signal r where r.id = u.id and u.occurred > r.retired_at)
    or exists (select from public.gov_retired_range r
                where r.source_name = d.source_name and u.number between r.lo and r.hi and u.occurred > r.retired_at)
