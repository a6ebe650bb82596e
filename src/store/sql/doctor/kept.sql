-- What retention empties, and since when it grows: since the first source was registered.
select (pg_total_relation_size('public.event_outbox') + pg_total_relation_size('public.event_feed'))::bigint as kept,
       (select extract(epoch from clock_timestamp() - min(c.created_at))::float8 from public.gov_worker_cursor c) as since
