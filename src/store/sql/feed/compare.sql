-- A stretch of the outbox, in the order of ids, against the same stretch of the feed: events without a position, events
-- whose position says something else than they do, and positions whose event is gone. An event of the inbox will get its
-- position in a moment.
with stretch as materialized (
    select o.id, o.event_domain, o.event_type, o.event_stream, o.event_severity, o.event_subject_table, o.event_subject_ref,
           o.actor_ref
      from public.event_outbox o
     where o.id >= $1
     order by o.id
     limit $2
), bounds as (
    select e.last, e.n,
           case when e.n < $2 then 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid else e.last end as upper
      from (select (select s.id from stretch s order by s.id desc limit 1) as last, (select count(*) from stretch) as n) e
), beside as (
    select s.id, f.event_id is null as missing,
           (f.event_domain, f.event_type, f.event_stream, f.event_severity, f.event_subject_table, f.event_subject_ref, f.actor_ref)
               is distinct from
           (s.event_domain, s.event_type, s.event_stream, s.event_severity, s.event_subject_table, s.event_subject_ref, s.actor_ref)
               as differs
      from stretch s
      left join public.event_feed f on f.event_id = s.id
), gone as (
    select f.event_id
      from bounds b
      join public.event_feed f on f.event_id >= $1 and f.event_id <= b.upper
     where not exists (select from public.event_outbox o where o.id = f.event_id)
)
select b.last, b.n,
       (select coalesce(array_agg(distinct d.id), '{}') from beside d
         where d.missing and not exists (select from public.gov_feed_inbox i where i.event_id = d.id)) as missing,
       (select coalesce(array_agg(distinct d.id), '{}') from beside d where d.differs and not d.missing) as differing,
       (select coalesce(array_agg(g.event_id), '{}') from gone g) as orphans,
       (select coalesce(array_agg(t.id), '{}') from (select d.id from beside d group by d.id having count(*) > 1) t) as doubled
  from bounds b
