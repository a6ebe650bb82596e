-- What the page and the API of `run --listen` read beside the other views. A look must cost the same however much there is, so
-- each view is bounded by keys or by a limit.

-- The changes of mode that a worker reported, with their reasons; gov_lease_modes keeps the last twenty.
create view public.v_gov_mode_history as
select h.executor_name as worker_name, (m.entry ->> 'at')::timestamptz as at, m.entry ->> 'mode' as mode, m.entry ->> 'reason' as reason
  from public.queue_heartbeat h
 cross join lateral jsonb_array_elements(h.metadata -> 'modes') as m (entry)
 where h.executor_name like 'gov\_%' and jsonb_typeof(h.metadata -> 'modes') = 'array';
comment on view public.v_gov_mode_history is 'the last changes of mode of each worker, and why';
comment on column public.v_gov_mode_history.at is 'when the change was reported';
comment on column public.v_gov_mode_history.mode is 'starting, stream or poll';
comment on column public.v_gov_mode_history.reason is 'why, in words';

create view public.v_gov_feed as
select s.low, greatest(s.low, (select max(f.pos) from public.event_feed f)) as last,
       (select count(*) from (select from public.gov_feed_inbox limit 10000) few) as waiting
  from public.gov_feed_state s;
comment on view public.v_gov_feed is 'one row: the bounds of the event feed, and events that wait for a position';
comment on column public.v_gov_feed.low is 'the highest position that retention removed';
comment on column public.v_gov_feed.last is 'the highest position there is';
comment on column public.v_gov_feed.waiting is 'events that have no position yet, counted up to 10,000';

-- A thousand watermarks at most, and a thousand events above each.
create view public.v_gov_reader as
select m.actor_ref, m.event_domain, m.event_stream, m.through, m.updated_at, a.above, a.above >= 1000 as above_is_more
  from (select r.* from public.event_read_mark r order by r.actor_ref, r.event_domain, r.event_stream limit 1000) m
 cross join lateral (
       select count(*) as above
         from (select from public.event_feed f
                where f.event_domain = m.event_domain and f.event_stream = m.event_stream and f.pos > m.through limit 1000) few) a;
comment on view public.v_gov_reader is 'readers of the feed: events above the watermark of each actor and stream, of the first thousand watermarks; ask for few';
comment on column public.v_gov_reader.above is 'events of the stream above the watermark, counted up to 1,000; some may be read, or not for this actor';
comment on column public.v_gov_reader.above_is_more is 'there may be more';

create view public.v_gov_letter as
select d.id, d.worker_name, d.route_code as source_name, d.idempotency_key, d.event_type, d.failure_code, d.attempts, d.first_failed_at,
       d.last_failed_at
  from public.iu_route_dead_letter d
 where d.resolved_at is null and (d.event_domain = 'governance' or d.worker_name = 'job_queue');
comment on view public.v_gov_letter is 'open dead letters of rows and of jobs; ask for few';

grant select on public.v_gov_mode_history, public.v_gov_feed, public.v_gov_reader, public.v_gov_letter
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
