-- Those of these signals that are recorded for another row: the key is the same, what it is about is not. Signals from before
-- the definition ($5 is its version) named rows as it does now may have named the same row otherwise, and prove nothing. What
-- retention took is compared by time: a row that came to be after its signals had been recorded is another one.
-- Where the outbox has a signal, it alone tells.
select u.id
  from unnest($1::uuid[], $2::text[], $3::bigint[], $4::timestamptz[]) as u (id, object_ref, number, occurred)
 cross join (select v.named, v.source_name from public.gov_source_version v where v.version = $5::uuid) d
  left join public.event_outbox o on o.id = u.id
 where case when o.id is not null
            then o.safe_payload ->> 'object_ref' <> u.object_ref
                 and o.created_at >= (d.named -> o.event_type ->> 'since')::timestamptz
            else exists (select from public.event_pending p
                          where p.id = u.id and p.processed_at is null and p.capture_payload ->> 'object_ref' <> u.object_ref
                            and (to_jsonb(p) ->> 'created_at')::timestamptz >= (d.named -> p.event_type_hint ->> 'since')::timestamptz)
                 or exists (select from public.gov_retired_signal r where r.id = u.id and u.occurred > r.recorded_at)
                 or exists (select from public.gov_retired_range r
                             where r.source_name = d.source_name and u.number between r.lo and r.hi and u.occurred > r.recorded_at)
            end
