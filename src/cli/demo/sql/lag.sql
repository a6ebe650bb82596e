-- From the commit of a birth to the commit of its handoff, by the server's own commit timestamps. Identities are ordered
-- like the keys they are made of, so the newest handoffs of a source are a stretch of the primary key.
with newest as materialized (
    select greatest(max(id) - $1::int, 1) as lo, max(id) as hi from public.birth_registry
),
stretch as materialized (
    select gov_handoff.gov_handoff_identity('birth_registry', 'int4', lo::text) as lo,
           gov_handoff.gov_handoff_identity('birth_registry', 'int4', (hi + 1)::text) as hi
      from newest
     where hi is not null
)
select percentile_cont(0.5) within group (order by l.ms) as p50,
       percentile_cont(0.99) within group (order by l.ms) as p99
  from (select (extract(epoch from pg_xact_commit_timestamp(o.xmin) - pg_xact_commit_timestamp(b.xmin)) * 1000)::float8 as ms
          from stretch as s
          join public.event_outbox as o on o.id >= s.lo and o.id < s.hi
          join public.birth_registry as b on b.id = (o.safe_payload ->> 'source_key')::int
         where o.event_type = 'governance.handoff.object_born'
           and pg_xact_commit_timestamp(o.xmin) > clock_timestamp() - interval '2 seconds') as l
