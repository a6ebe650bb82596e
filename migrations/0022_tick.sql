-- What becomes due in the queue: the delayed lane, escalations, the broadcast watch. And what consumers need beside it: the
-- log that makes an effect happen once, and the views for alerts.
--
-- All due work is done by gates named gov_tick_*. Each takes the time and does a bounded part of what is due, in the
-- caller's transaction. The rows that a gate works on are locked, and rows that another session works on are skipped. So
-- any number of sessions may call them, as often as they like.
--
--   gov_tick_gather      new pieces of the delayed lane are counted into their groups
--   gov_tick_delayed     groups that are due: one roll-up, or the pieces of up to 500 small groups
--   gov_tick_routing     a page of the feed: recipients of events that are acknowledged, critical events to watch, broadcasts
--   gov_tick_escalation  critical events that nobody acknowledged in time
--   gov_tick_jobs        the jobs: what gov_job_tick (0024) does
--
-- The worker gov_queue_tick calls them through gov_tick_page, each in a commit of its own. fn_event_worker_tick calls them
-- all in one, for a database that has a scheduler and no daemon.

-- The delayed lane --------------------------------------------------------------------------------------------------

-- A piece is a row of event_pending with the hint event.delayed. The live table has no index for groups, and gets none.
-- Emitters only insert here, so that an open transaction of theirs holds up nobody.
create table public.event_delayed (
    pending_id   uuid        not null primary key,
    event_domain text        not null,
    group_ref    text        not null,
    emitted_at   timestamptz not null,
    gathered     boolean     not null default false
);
create index event_delayed_new on public.event_delayed (emitted_at) where not gathered;
create index event_delayed_of on public.event_delayed (event_domain, group_ref) where gathered;
comment on table public.event_delayed is 'the pieces that wait in the delayed lane; the piece itself is a row of event_pending';
comment on column public.event_delayed.pending_id is 'the row of event_pending, and the id that the event will have';
comment on column public.event_delayed.event_domain is 'the domain';
comment on column public.event_delayed.group_ref is 'the group: key: and the stable key of the event, or piece: and its id when it has no key';
comment on column public.event_delayed.emitted_at is 'when it was emitted';
comment on column public.event_delayed.gathered is 'its group counts it';

create table public.event_delayed_group (
    event_domain text        not null,
    group_ref    text        not null,
    first_at     timestamptz not null,
    last_at      timestamptz not null,
    pieces       bigint      not null,
    primary key (event_domain, group_ref)
);
-- What is due in a domain stands at the front of one of these, whatever else waits.
create index event_delayed_group_quiet on public.event_delayed_group (event_domain, last_at);
create index event_delayed_group_oldest on public.event_delayed_group (event_domain, first_at);
comment on table public.event_delayed_group is 'groups of the delayed lane that are not released yet';
comment on column public.event_delayed_group.event_domain is 'the domain';
comment on column public.event_delayed_group.group_ref is 'the group, as in event_delayed';
comment on column public.event_delayed_group.first_at is 'when its first piece was emitted';
comment on column public.event_delayed_group.last_at is 'when its latest piece was emitted';
comment on column public.event_delayed_group.pieces is 'how many pieces wait';

-- Called by every gate that leaves a piece in event_pending, in the same transaction.
create function gov_handoff.gov_delayed_note(p_ids uuid[])
returns void language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into public.event_delayed (pending_id, event_domain, group_ref, emitted_at)
    select p.id, p.event_domain,
           coalesce('key:' || coalesce(nullif(p.capture_payload #>> '{payload,source_document_ref}', ''),
                                       nullif(p.capture_payload #>> '{payload,import_batch_ref}', ''),
                                       nullif(p.capture_payload #>> '{event,correlation_id}', '')),
                    'piece:' || p.id),
           coalesce((p.capture_payload #>> '{event,emitted_at}')::timestamptz, clock_timestamp())
      from public.event_pending p
     where p.id = any (p_ids) and p.event_type_hint = 'event.delayed' and p.processed_at is null
    on conflict (pending_id) do nothing
$$;
comment on function gov_handoff.gov_delayed_note(uuid[]) is 'notes pieces of event_pending as waiting in the delayed lane';

-- A duration of dot_config: a number of seconds, or an interval. The first key that is set counts. A value that cannot be
-- used raises a finding, and the next key counts.
create function gov_handoff.gov_config_duration(p_keys text[], p_default interval)
returns interval language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    k record;
    v_value interval;
begin
    for k in
        select c.key, btrim(c.value) as value
          from unnest(p_keys) with ordinality as u (key, n) join public.dot_config c on c.key = u.key order by u.n
    loop
        if k.value = 'off' then
            return null;
        end if;
        begin
            v_value := case when k.value ~ '^[0-9]{1,9}$' then k.value::int * interval '1 second' else k.value::interval end;
        exception when others then
            v_value := null;
        end;
        if v_value >= interval '0' then
            return v_value;
        end if;
        perform gov_handoff.gov_finding_raise('config_invalid', 'config_invalid:' || k.key, 'warning',
            jsonb_build_object('key', k.key, 'expected', 'a number of seconds, or an interval such as 30 seconds'), true);
    end loop;
    return p_default;
end
$$;
comment on function gov_handoff.gov_config_duration(text[], interval) is 'a duration of dot_config: seconds or an interval, by the first key that is set; null: off';

-- How long a group of a domain waits after its latest piece. A domain's own setting may be any, zero as well. The default
-- is kept within one and five minutes.
create function gov_handoff.gov_debounce(p_domain text)
returns interval language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(gov_handoff.gov_config_duration(array['event.debounce.' || p_domain], null),
                    least(greatest(gov_handoff.gov_config_duration(array['event.debounce.default'], interval '90 seconds'),
                                   interval '60 seconds'), interval '300 seconds'),
                    interval '90 seconds');
end
$$;
comment on function gov_handoff.gov_debounce(text) is 'how long a group of the delayed lane waits after its latest piece: event.debounce.<domain>, else event.debounce.default within 60 to 300 s, else 90 s';

-- From how many pieces on a group is rolled up.
create function gov_handoff.gov_rollup_threshold(p_domain text)
returns bigint language sql
set search_path = pg_catalog, pg_temp
as $$
    select gov_handoff.gov_config_number('event.rollup.threshold.' || p_domain,
               gov_handoff.gov_config_number('event.rollup.threshold', 10, 2, 1000000000), 2, 1000000000)
$$;
comment on function gov_handoff.gov_rollup_threshold(text) is 'from how many pieces on a group is rolled up: event.rollup.threshold.<domain>, else event.rollup.threshold, else 10';

create function gov_handoff.gov_tick_gather(p_now timestamptz)
returns table (done bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    with taken as materialized (
        select d.pending_id, d.event_domain, d.group_ref, d.emitted_at from public.event_delayed d
         where not d.gathered order by d.emitted_at limit 5000 for update skip locked),
    marked as (
        update public.event_delayed d set gathered = true from taken t where d.pending_id = t.pending_id),
    counted as (
        insert into public.event_delayed_group as g (event_domain, group_ref, first_at, last_at, pieces)
        select t.event_domain, t.group_ref, min(t.emitted_at), max(t.emitted_at), count(*)
          from taken t group by 1, 2 order by 1, 2
        on conflict (event_domain, group_ref) do update
            set first_at = least(g.first_at, excluded.first_at), last_at = greatest(g.last_at, excluded.last_at),
                pieces = g.pieces + excluded.pieces)
    select count(*) into done from taken;
    more := done = 5000;
    return next;
end
$$;
comment on function gov_handoff.gov_tick_gather(timestamptz) is 'counts new pieces of the delayed lane into their groups; up to 5,000 a call';

-- The domains in which a group is due, with their pause; the one that is due for longest first. A group is due after a pause
-- without a new piece, at the latest ten pauses after its first piece, so that a steady trickle does not wait indefinitely.
-- Each step of the recursion and each `min` is one probe of an index, however many groups wait.
create function gov_handoff.gov_delayed_due(p_now timestamptz)
returns table (event_domain text, pause interval) language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with recursive domain as (
        (select g.event_domain from public.event_delayed_group g order by g.event_domain limit 1)
        union all
        select n.event_domain
          from domain d cross join lateral (
              select g.event_domain from public.event_delayed_group g
               where g.event_domain > d.event_domain order by g.event_domain limit 1) n),
    paused as materialized (
        select d.event_domain, gov_handoff.gov_debounce(d.event_domain) as pause from domain d)
    select p.event_domain, p.pause
      from paused p
     cross join lateral (
         select least((select min(g.last_at) from public.event_delayed_group g where g.event_domain = p.event_domain) + p.pause,
                      (select min(g.first_at) from public.event_delayed_group g where g.event_domain = p.event_domain) + 10 * p.pause) as due) e
     where e.due <= p_now
     order by e.due
$$;
comment on function gov_handoff.gov_delayed_due(timestamptz) is 'the domains in which a group of the delayed lane is due, with their pause';

-- Takes groups of a domain that are due out of the lane: one that may be rolled up, alone; or up to 500 small ones, with up to 10
-- pieces each, because an event without a key is a group of its own. Groups that another session works on are skipped.
create function gov_handoff.gov_delayed_take(p_domain text, p_pause interval, p_now timestamptz, out refs text[], out ids uuid[])
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_small bigint := least(gov_handoff.gov_rollup_threshold(p_domain) - 1, 10);
    v_pieces bigint[];
    v_large int;
begin
    -- Two statements, because each of the two reasons for which a group is due has its own index.
    select array_agg(t.group_ref), array_agg(t.pieces) into refs, v_pieces
      from (select g.group_ref, g.pieces from public.event_delayed_group g
             where g.event_domain = p_domain and g.last_at <= p_now - p_pause
             order by g.last_at limit 500 for update skip locked) t;
    if refs is null then
        select array_agg(t.group_ref), array_agg(t.pieces) into refs, v_pieces
          from (select g.group_ref, g.pieces from public.event_delayed_group g
                 where g.event_domain = p_domain and g.first_at <= p_now - 10 * p_pause
                 order by g.first_at limit 500 for update skip locked) t;
    end if;
    v_large := (select min(u.n) from unnest(v_pieces) with ordinality as u (pieces, n) where u.pieces > v_small);
    refs := case when v_large = 1 then refs[:1] when v_large > 1 then refs[:v_large - 1] else refs end;
    with gone as (
        delete from public.event_delayed d
         where d.event_domain = p_domain and d.group_ref = any (refs) and d.gathered
        returning d.pending_id, d.emitted_at)
    select coalesce(array_agg(g.pending_id order by g.emitted_at, g.pending_id), '{}') into ids from gone g;
    delete from public.event_delayed_group g where g.event_domain = p_domain and g.group_ref = any (refs);
end
$$;
comment on function gov_handoff.gov_delayed_take(text, interval, timestamptz)
    is 'takes groups of a domain that are due out of the delayed lane: up to 500 small ones, or one large one';

-- A part of what is due: one large group, which from the threshold on becomes one roll-up event, or many small groups, whose
-- pieces are released. What leaves the lane and what is emitted commit together.
create function gov_handoff.gov_tick_delayed(p_now timestamptz)
returns table (done bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_due record;
    v_taken record;
    v_rolled boolean := false;
begin
    done := 0;
    more := false;
    for v_due in select d.event_domain, d.pause from gov_handoff.gov_delayed_due(p_now) d loop
        select t.refs, t.ids into v_taken from gov_handoff.gov_delayed_take(v_due.event_domain, v_due.pause, p_now) t;
        continue when v_taken.refs is null;
        if cardinality(v_taken.refs) = 1 and cardinality(v_taken.ids) >= gov_handoff.gov_rollup_threshold(v_due.event_domain) then
            v_rolled := gov_handoff.gov_delayed_roll_up(v_due.event_domain, v_taken.refs[1], v_taken.ids);
        end if;
        if not v_rolled then
            perform gov_handoff.gov_delayed_release(v_taken.ids);
        end if;
        done := cardinality(v_taken.ids);
        more := true;
        exit;
    end loop;
    return next;
end
$$;
comment on function gov_handoff.gov_tick_delayed(timestamptz) is 'releases a part of the delayed lane that is due: one roll-up, or the pieces of small groups';

-- One event for many pieces. Its identity comes from the group and the first piece, so that it cannot be emitted twice.
-- False: the event was refused, and the pieces are to be released instead.
create function gov_handoff.gov_delayed_roll_up(p_domain text, p_group text, p_ids uuid[])
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_event jsonb;
    v_outcome text;
begin
    select jsonb_build_object('domain', p_domain, 'type', p_domain || '.rollup', 'subject_table', 'event_pending',
               'subject_ref', md5(length(p_domain) || ':' || p_domain || length(p_group) || ':' || p_group || p_ids[1])::uuid,
               'address', 'rollup:' || p_domain || '/' || left(p_group, 500),
               -- A roll-up of one author's events is that author's.
               'actor', case when count(distinct p.actor_ref) = 1 then min(p.actor_ref) else 'svc:gov-handoff' end,
               'source_system', 'gov-handoff', 'lane', 'immediate', 'correlation_id', left(substr(p_group, 5), 500),
               'severity', case max(case p.capture_payload #>> '{event,severity}' when 'critical' then 3 when 'warning' then 2 when 'info' then 1 end)
                           when 3 then 'critical' when 2 then 'warning' when 1 then 'info' end,
               'occurred_at', max((p.capture_payload #>> '{event,occurred_at}')::timestamptz),
               'payload', jsonb_build_object('count', count(*),
                   'first_address', left((array_agg(p.canonical_address order by u.n))[1], 1000),
                   'last_address', left((array_agg(p.canonical_address order by u.n desc))[1], 1000),
                   'types', (select jsonb_object_agg(t.type, t.n)
                               from (select left(q.capture_payload #>> '{event,type}', 200) as type, count(*) as n
                                       from public.event_pending q where q.id = any (p_ids) group by 1 order by 2 desc limit 20) t)))
      into v_event
      from unnest(p_ids) with ordinality as u (id, n) join public.event_pending p on p.id = u.id;
    select e.outcome into v_outcome from gov_handoff.gov_event_emit(jsonb_build_array(v_event), true) e;
    if v_outcome is distinct from 'refused' then
        update public.event_pending p set processed_at = clock_timestamp(), last_error = 'rolled_up'
         where p.id = any (p_ids) and p.processed_at is null;
        return true;
    end if;
    return false;
end
$$;
comment on function gov_handoff.gov_delayed_roll_up(text, text, uuid[]) is 'emits one event for the pieces of a group; false: it was refused';

-- A live outbox may have rules of its own. A piece that it rejects stays in event_pending, with a finding; the others are
-- released.
create function gov_handoff.gov_delayed_release(p_ids uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_half int := cardinality(p_ids) / 2;
    v_state text;
begin
    begin
        perform gov_handoff.gov_event_release(p_ids);
        return;
    exception when integrity_constraint_violation or data_exception or raise_exception then
        get stacked diagnostics v_state = returned_sqlstate;
    end;
    if v_half > 0 then
        perform gov_handoff.gov_delayed_release(p_ids[:v_half]);
        perform gov_handoff.gov_delayed_release(p_ids[v_half + 1:]);
        return;
    end if;
    update public.event_pending p set last_error = 'refused_by_outbox', error_count = p.error_count + 1 where p.id = p_ids[1];
    perform gov_handoff.gov_finding_raise('queue.emit_refused', 'queue.emit_refused:' || p.event_domain || '/event.delayed', 'high',
            jsonb_build_object('event_domain', p.event_domain, 'sqlstate', v_state, 'event_id', p.id))
       from public.event_pending p where p.id = p_ids[1];
end
$$;
comment on function gov_handoff.gov_delayed_release(uuid[]) is 'releases pieces of the delayed lane; those that the outbox rejects stay, with a finding';

-- Roll-ups are event types like others. They ship inactive; until one is active its roll-ups are captured.
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select d.domain, d.domain || '.rollup', 'update', false
  from unnest('{iu, piece, staging, birth_registry, governance, tac, kg, system, dot, health}'::text[]) as d (domain)
 where not exists (select from public.event_type_registry r where r.event_domain = d.domain and r.event_type = d.domain || '.rollup');

-- Routing: what is looked at once for every event ---------------------------------------------------------------------

create table public.event_routing (
    one     bool   not null primary key default true,
    through bigint not null default 0,
    constraint event_routing_is_one_row check (one)
);
comment on table public.event_routing is 'one row: up to which position of event_feed the events are routed';
comment on column public.event_routing.one is 'always true';
comment on column public.event_routing.through is 'the position';
insert into public.event_routing default values;

create table public.event_routing_tally (
    hour         timestamptz not null,
    event_domain text        not null,
    event_type   text        not null,
    events       bigint      not null,
    broadcast    bigint      not null,
    primary key (hour, event_domain, event_type)
) with (fillfactor = 70);
comment on table public.event_routing_tally is 'events by the hour in which they were routed, and how many of them only a broadcast reached; kept for two days';
comment on column public.event_routing_tally.hour is 'the hour';
comment on column public.event_routing_tally.event_domain is 'the domain';
comment on column public.event_routing_tally.event_type is 'the type';
comment on column public.event_routing_tally.events is 'how many events were routed';
comment on column public.event_routing_tally.broadcast is 'how many of them no subscription matched';

create table public.event_escalation (
    event_id     uuid        not null primary key,
    event_domain text        not null,
    since        timestamptz not null,
    state        text        not null default 'waiting',
    unacked_id   uuid,
    closed_at    timestamptz,
    constraint event_escalation_state_known check (state = any ('{waiting, acknowledged, escalated, off}'))
);
create index event_escalation_waiting on public.event_escalation (since) where state = 'waiting';
comment on table public.event_escalation is 'critical events, and whether somebody acknowledged them in time';
comment on column public.event_escalation.event_id is 'the critical event';
comment on column public.event_escalation.event_domain is 'its domain';
comment on column public.event_escalation.since is 'when it was routed: the time to acknowledge it begins';
comment on column public.event_escalation.state is 'waiting; acknowledged in time; escalated; off: its domain has no escalation';
comment on column public.event_escalation.unacked_id is 'the event that was emitted because nobody acknowledged it';
comment on column public.event_escalation.closed_at is 'when it stopped waiting';

create index event_feed_alert on public.event_feed (pos) where event_severity in ('warning', 'critical');

-- Of these events, those that no subscription brings to anybody. Each shape of event is decided once, as in gov_received.
create function gov_handoff.gov_unsubscribed(p_ids uuid[], p_domain text[], p_type text[], p_stream text[], p_table text[])
returns uuid[] language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    v_enabled boolean := gov_handoff.gov_subscription_enabled();
    v_none uuid[];
    v_unsure uuid[];
begin
    with given as materialized (
        select g.id, g.domain, g.type, g.stream, coalesce(g.tab, '') as tab
          from unnest(p_ids, p_domain, p_type, p_stream, p_table) as g (id, domain, type, stream, tab)),
    shape as materialized (
        select k.domain, k.type, k.stream, k.tab, d.open, d.filtered
          from (select distinct g.domain, g.type, g.stream, g.tab from given g) k
         cross join lateral (
             select bool_or(not t.mute) as open, bool_or(t.filtered) as filtered
               from (select distinct on (m.recipient_ref) m.mute, bool_or(m.filtered) over (partition by m.recipient_ref) as filtered
                       from (select s.recipient_ref, s.mute, coalesce(s.scope_filter, '{}') <> '{}' as filtered,
                                    gov_handoff.gov_subscription_step(s.event_domain, s.event_type, s.event_stream, k.domain, k.type, k.stream) as step
                               from public.event_subscription s
                              where v_enabled and (s.scope_subject_table is null or s.scope_subject_table = nullif(k.tab, ''))) m
                      where m.step is not null
                      order by m.recipient_ref, m.step, m.mute desc) t) d),
    judged as materialized (
        select g.id, s.filtered is true or exists (select from public.event_addressee a where a.event_id = g.id) as unsure, s.open
          from given g join shape s on (s.domain, s.type, s.stream, s.tab) = (g.domain, g.type, g.stream, g.tab))
    select coalesce(array_agg(j.id) filter (where j.open is not true and not j.unsure), '{}'),
           coalesce(array_agg(j.id) filter (where j.unsure), '{}')
      into v_none, v_unsure
      from judged j;
    return v_none || array(
        select u.id from unnest(v_unsure) as u (id)
         where not exists (select from gov_handoff.event_resolution n where n.event_id = u.id and n.step < 6 and not n.muted));
end
$$;
comment on function gov_handoff.gov_unsubscribed(uuid[], text[], text[], text[], text[]) is 'of these events, those that only a broadcast reaches';

create function gov_handoff.gov_tick_routing(p_now timestamptz)
returns table (done bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_through bigint;
    v_last bigint;
    v_ids uuid[];
    v_domain text[];
    v_type text[];
    v_stream text[];
    v_table text[];
    v_severity text[];
    v_broadcast uuid[];
    v_share numeric;
    v_limit bigint;
begin
    done := 0;
    more := false;
    select r.through into v_through from public.event_routing r for update skip locked;
    if not found then
        return next;
        return;
    end if;
    select max(f.pos), array_agg(f.event_id), array_agg(f.event_domain), array_agg(f.event_type), array_agg(f.event_stream),
           array_agg(f.event_subject_table), array_agg(f.event_severity)
      into v_last, v_ids, v_domain, v_type, v_stream, v_table, v_severity
      from (select e.* from public.event_feed e where e.pos > v_through order by e.pos limit 2000) f;
    if v_last is null then
        return next;
        return;
    end if;
    v_broadcast := gov_handoff.gov_unsubscribed(v_ids, v_domain, v_type, v_stream, v_table);
    insert into public.event_routing_tally as t (hour, event_domain, event_type, events, broadcast)
    select date_trunc('hour', p_now), u.domain, u.type, count(*), count(b.id)
      from unnest(v_ids, v_domain, v_type) as u (id, domain, type) left join unnest(v_broadcast) as b (id) on b.id = u.id
     group by 2, 3 order by 2, 3
    on conflict (hour, event_domain, event_type) do update
        set events = t.events + excluded.events, broadcast = t.broadcast + excluded.broadcast;
    delete from public.event_routing_tally t where t.hour < p_now - interval '2 days';
    perform gov_handoff.gov_event_deliver(array(
        select u.id from unnest(v_ids, v_stream) as u (id, stream) where u.stream in ('task', 'review', 'alert')));
    insert into public.event_escalation (event_id, event_domain, since)
    select u.id, u.domain, p_now
      from unnest(v_ids, v_domain, v_type, v_stream, v_severity) as u (id, domain, type, stream, severity)
     where u.severity = 'critical' and u.stream in ('task', 'review', 'alert') and u.type !~ '_unacked$'
    on conflict (event_id) do nothing;
    update public.event_routing r set through = v_last;
    done := cardinality(v_ids);
    more := done = 2000;
    -- A share of broadcasts means something only where subscriptions are in use.
    v_limit := gov_handoff.gov_config_number('event.broadcast.warn_percent', 5, 0, 100);
    select 100.0 * sum(t.broadcast) / sum(t.events) into v_share
      from public.event_routing_tally t where t.hour > p_now - interval '24 hours';
    if v_share > v_limit and gov_handoff.gov_subscription_enabled() and exists (select from public.event_subscription s where not s.mute) then
        perform gov_handoff.gov_finding_sustain('subscription_broadcast', 'subscription_broadcast', 'warning',
            jsonb_build_object('percent', round(v_share, 1), 'limit', v_limit, 'see', 'v_subscription_broadcast_used'), interval '1 hour');
    else
        perform gov_handoff.gov_finding_resolve('subscription_broadcast', 'subscriptions reach enough of the events');
    end if;
    return next;
end
$$;
comment on function gov_handoff.gov_tick_routing(timestamptz) is 'routes up to 2,000 events of the feed: notes recipients of events to acknowledge, critical events and broadcasts';

insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.finding.subscription_broadcast', 'alert', false
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.finding.subscription_broadcast');

create view public.v_subscription_broadcast_used as
select t.event_domain, t.event_type, sum(t.events)::bigint as events_24h, sum(t.broadcast)::bigint as broadcast_events_24h,
       round(100.0 * sum(t.broadcast) / sum(t.events), 1) as percent
  from public.event_routing_tally t
 where t.hour > clock_timestamp() - interval '24 hours'
 group by 1, 2
having sum(t.broadcast) > 0;
comment on view public.v_subscription_broadcast_used is 'events of the last 24 hours that no subscription matched, so that they went to everybody';
comment on column public.v_subscription_broadcast_used.event_domain is 'the domain';
comment on column public.v_subscription_broadcast_used.event_type is 'the type';
comment on column public.v_subscription_broadcast_used.events_24h is 'how many events of the type there were';
comment on column public.v_subscription_broadcast_used.broadcast_events_24h is 'how many of them no subscription matched';
comment on column public.v_subscription_broadcast_used.percent is 'the share';

-- Escalation ----------------------------------------------------------------------------------------------------------

-- A critical event that nobody acknowledged in time is followed by an event of the type <type>_unacked, once. That type is
-- registered when it is first needed, active as the type itself is. It goes to the recipients that dot_config names, besides
-- its subscribers.
create function gov_handoff.gov_tick_escalation(p_now timestamptz)
returns table (done bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    e record;
    v_after interval;
    v_state text;
    v_id uuid;
begin
    done := 0;
    for e in
        select x.event_id, x.event_domain, x.since, o.event_type, o.canonical_address, o.id is not null as there
          from public.event_escalation x left join public.event_outbox o on o.id = x.event_id
         where x.state = 'waiting'
         order by x.since limit 200 for update of x skip locked
    loop
        v_after := gov_handoff.gov_config_duration(array['event.escalation.after.' || e.event_domain, 'event.escalation.after'], interval '15 minutes');
        v_id := null;
        v_state := case when exists (select from public.event_delivery d where d.event_id = e.event_id and d.acked_at is not null)
                          or exists (select from public.event_read r where r.event_id = e.event_id and to_jsonb(r) ->> 'ack_at' is not null)
                        then 'acknowledged'
                        when v_after is null or not e.there then 'off'
                        when e.since + v_after <= p_now then 'escalated' end;
        if v_state = 'escalated' then
            v_id := gov_handoff.gov_escalate(e.event_domain, e.event_type, e.event_id, e.canonical_address, p_now - e.since);
        end if;
        if v_state is not null then
            update public.event_escalation x set state = v_state, unacked_id = v_id, closed_at = p_now where x.event_id = e.event_id;
            done := done + 1;
        end if;
    end loop;
    more := done = 200;
    return next;
end
$$;
comment on function gov_handoff.gov_tick_escalation(timestamptz) is 'emits <type>_unacked for critical events that nobody acknowledged in time; up to 200 a call';

create function gov_handoff.gov_escalate(p_domain text, p_type text, p_event uuid, p_address text, p_waited interval)
returns uuid language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_type text := p_type || '_unacked';
    v_id uuid := md5('escalation:' || p_event)::uuid;
    v_active boolean;
begin
    insert into public.event_type_registry (event_domain, event_type, event_stream, active)
    select p_domain, v_type, 'alert',
           coalesce((select t.active from public.event_type_registry t where t.event_domain = p_domain and t.event_type = p_type), false)
     where not exists (select from public.event_type_registry t where t.event_domain = p_domain and t.event_type = v_type)
    on conflict do nothing;
    select t.active into v_active from public.event_type_registry t where t.event_domain = p_domain and t.event_type = v_type;
    if v_active then
        perform gov_handoff.gov_event_insert(array[v_id], array[p_domain], array[v_type], array['alert'], array['critical'], array['immediate'],
            array['event_outbox'], array[p_event], array[p_address], array['svc:gov-handoff'], array['gov-handoff'], array[null::text],
            array[p_event], array[jsonb_build_object('event_id', p_event, 'event_type', p_type, 'waited_seconds', round(extract(epoch from p_waited)))],
            array[clock_timestamp()]);
    else
        select m.event_id into v_id
          from gov_handoff.gov_event_emit(jsonb_build_array(jsonb_build_object('domain', p_domain, 'type', v_type,
                   'subject_table', 'event_outbox', 'subject_ref', p_event, 'address', p_address, 'actor', 'svc:gov-handoff',
                   'source_system', 'gov-handoff', 'severity', 'critical', 'causation_id', p_event, 'lane', 'immediate',
                   'payload', jsonb_build_object('event_id', p_event, 'event_type', p_type,
                                                 'waited_seconds', round(extract(epoch from p_waited))))), true) m;
    end if;
    insert into public.event_addressee (event_id, recipient_ref)
    select distinct v_id, btrim(r.ref)
      from public.dot_config c cross join lateral regexp_split_to_table(c.value, '[,[:space:]]+') as r (ref)
     where v_id is not null and btrim(r.ref) <> ''
       and c.key = (select k.key from public.dot_config k
                     where k.key in ('event.escalation.to', 'event.escalation.to.' || p_domain) order by length(k.key) desc limit 1)
    on conflict do nothing;
    return v_id;
end
$$;
comment on function gov_handoff.gov_escalate(text, text, uuid, text, interval) is 'emits the event that says that a critical event was not acknowledged in time';

-- The tick --------------------------------------------------------------------------------------------------------------

-- The jobs have a tick of their own. A part that did as many as it was allowed has more to do.
create function gov_handoff.gov_tick_jobs(p_now timestamptz)
returns table (done bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    select coalesce(sum(t.n), 0)::bigint, coalesce(max(t.n), 0) >= 1000 into done, more
      from (select (e.value #>> '{}')::bigint as n from jsonb_each(gov_handoff.gov_job_tick(p_now, 1000)) e) t;
    return next;
end
$$;
comment on function gov_handoff.gov_tick_jobs(timestamptz) is 'due retries and starts, expired leases, schedules and deadlines of jobs';

-- Runs one gate by name.
create function gov_handoff.gov_tick_gate(p_gate text, p_now timestamptz)
returns table (done bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_gate <> all ('{gather, delayed, routing, escalation, jobs}') then
        raise exception 'there is no gate %; known are gather, delayed, routing, escalation, jobs', p_gate using errcode = 'GH003';
    end if;
    return query execute format('select done, more from gov_handoff.%I($1)', 'gov_tick_' || p_gate) using p_now;
end
$$;
comment on function gov_handoff.gov_tick_gate(text, timestamptz) is 'runs one of the gates gov_tick_*';

-- A page of the worker gov_queue_tick: one gate, and the fence. Without work nothing is written.
create function gov_handoff.gov_tick_page(p_worker text, p_owner text, p_term bigint, p_gate text, p_begins boolean)
returns table (done bigint, more boolean) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    select g.done, g.more into done, more from gov_handoff.gov_tick_gate(p_gate, clock_timestamp()) g;
    if done > 0 then
        perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, p_gate, done, done, 0, p_begins, not more);
    end if;
    return next;
end
$$;
comment on function gov_handoff.gov_tick_page(text, text, bigint, text, boolean) is 'a page of gov_queue_tick: one gate of the tick, behind the fence';

-- All of it, bounded: for any scheduler, and for psql. It is one transaction, so a call does up to a hundred parts of the
-- delayed lane together; the worker does each in a commit of its own. p_now is for tests.
create function public.fn_event_worker_tick(p_now timestamptz default null)
returns table (gate text, done bigint, more boolean) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_gate text;
    v_part record;
    v_rounds int;
begin
    foreach v_gate in array '{gather, delayed, routing, escalation, jobs}'::text[] loop
        gate := v_gate;
        done := 0;
        v_rounds := case v_gate when 'delayed' then 100 else 10 end;
        loop
            select g.done, g.more into v_part from gov_handoff.gov_tick_gate(v_gate, coalesce(p_now, clock_timestamp())) g;
            done := done + v_part.done;
            more := v_part.more;
            v_rounds := v_rounds - 1;
            exit when not more or v_rounds = 0;
        end loop;
        return next;
    end loop;
end
$$;
comment on function public.fn_event_worker_tick(timestamptz)
    is 'Does what is due: roll-ups and releases of the delayed lane, routing, escalations, jobs. Bounded, and safe at any frequency from any number of sessions; call again while `more`.';

-- Trigger-out -----------------------------------------------------------------------------------------------------------

create table public.event_consumed (
    consumer    text        not null,
    event_id    uuid        not null,
    consumed_at timestamptz not null default clock_timestamp(),
    primary key (consumer, event_id),
    constraint event_consumed_named check (btrim(consumer) <> '')
);
comment on table public.event_consumed is 'which consumer has acted on which event; written by fn_event_consume_once in the transaction of the effect';
comment on column public.event_consumed.consumer is 'the consumer';
comment on column public.event_consumed.event_id is 'the event';
comment on column public.event_consumed.consumed_at is 'when it acted';

-- True for the first caller. A second one waits until the first has committed, and gets false; if the first rolled back, it
-- gets true. So an effect in the same transaction happens once.
create function public.fn_event_consume_once(p_consumer text, p_event uuid)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(btrim(p_consumer), '') = '' or p_event is null then
        raise exception 'a consumer and an event are needed, found % and %', coalesce(p_consumer, 'no consumer'), coalesce(p_event::text, 'no event')
            using errcode = 'GH003';
    end if;
    insert into public.event_consumed (consumer, event_id) values (p_consumer, p_event) on conflict do nothing;
    return found;
end
$$;
comment on function public.fn_event_consume_once(text, uuid)
    is 'True if this consumer has not acted on the event yet. Call it in the transaction of the effect, and act only on true.';

-- Views -------------------------------------------------------------------------------------------------------------------

create view public.v_event_universal_board as
select f.pos, f.event_id, f.event_domain, f.event_type, f.event_stream, f.event_severity, f.event_subject_table, f.event_subject_ref,
       o.canonical_address, f.actor_ref, o.source_system, o.occurred_at,
       exists (select from public.event_delivery d where d.event_id = f.event_id and d.acked_at is not null) as acknowledged
  from public.event_feed f join public.event_outbox o on o.id = f.event_id;
comment on view public.v_event_universal_board is 'all events of all domains; ask for it with order by pos desc and a limit';
comment on column public.v_event_universal_board.pos is 'the position in the feed: page on with pos < the lowest one shown';
comment on column public.v_event_universal_board.acknowledged is 'somebody acknowledged it';

create view public.v_event_alerts_recent as
select f.pos, f.event_id, f.event_domain, f.event_type, f.event_stream, f.event_severity, o.canonical_address, f.actor_ref, o.occurred_at,
       exists (select from public.event_delivery d where d.event_id = f.event_id and d.acked_at is not null) as acknowledged
  from (select e.* from public.event_feed e where e.event_severity in ('warning', 'critical') order by e.pos desc limit 1000) f
  join public.event_outbox o on o.id = f.event_id
 where o.occurred_at > clock_timestamp() - interval '24 hours';
comment on view public.v_event_alerts_recent is 'warnings and critical events of the last 24 hours, of the latest thousand';
comment on column public.v_event_alerts_recent.acknowledged is 'somebody acknowledged it';

create view public.v_health_open_issues as
select i.issue_kind, i.coalesce_key, i.severity, i.source_system, i.occurrence_count, i.first_seen_at, i.last_seen_at
  from public.system_issues i where i.resolved_at is null;
comment on view public.v_health_open_issues is 'open issues of every system, without their detail';

create view public.v_event_delayed as
select g.event_domain, g.group_ref, g.pieces, g.first_at, g.last_at from public.event_delayed_group g;
comment on view public.v_event_delayed is 'groups that wait in the delayed lane';

-- Events of the live notifications beside those of the outbox. Their table and functions are only read. Where there is no
-- such table, or it has another shape, the view shows the outbox alone.
create view public.v_event_unified as
select o.event_domain, o.event_type, o.event_stream, o.event_severity, o.event_subject_table, o.event_subject_ref, o.canonical_address,
       o.actor_ref, o.source_system, o.payload_classification, o.safe_payload, o.occurred_at, o.id as event_id
  from public.event_outbox o;
do $$
begin
    if to_regclass('public.iu_notification_event') is not null then
        begin
            drop view public.v_event_unified;
            execute $view$
                create view public.v_event_unified as
                select o.event_domain, o.event_type, o.event_stream, o.event_severity, o.event_subject_table, o.event_subject_ref,
                       o.canonical_address, o.actor_ref, o.source_system, o.payload_classification, o.safe_payload, o.occurred_at, o.id as event_id
                  from public.event_outbox o
                union all
                select 'iu', n.event_type, n.event_stream, null, 'information_unit', n.unit_id, n.canonical_address, n.actor_ref, n.source,
                       'safe_metadata', n.payload, n.created_at, n.id
                  from public.iu_notification_event n
            $view$;
        exception when undefined_column or datatype_mismatch or invalid_table_definition then
            raise warning 'iu_notification_event has another shape: v_event_unified shows the outbox alone (%)', sqlerrm;
        end;
    end if;
end
$$;
comment on view public.v_event_unified is 'events of the outbox, and of iu_notification_event where that table exists; ask for few';

do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace
               and p.proname in ('gov_delayed_note', 'gov_config_duration', 'gov_debounce', 'gov_rollup_threshold', 'gov_tick_gather',
                                 'gov_tick_delayed', 'gov_delayed_due', 'gov_delayed_take', 'gov_delayed_roll_up', 'gov_delayed_release', 'gov_unsubscribed', 'gov_tick_routing',
                                 'gov_tick_escalation', 'gov_tick_jobs', 'gov_escalate', 'gov_tick_gate', 'gov_tick_page')
            or p.pronamespace = 'public'::regnamespace and p.proname in ('fn_event_worker_tick', 'fn_event_consume_once')
    loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant execute on function gov_handoff.gov_tick_page(text, text, bigint, text, boolean) to gov_handoff_worker;
grant execute on function public.fn_event_worker_tick(timestamptz) to gov_handoff_worker, gov_handoff_operator;
grant execute on function public.fn_event_consume_once(text, uuid) to gov_handoff_operator, gov_handoff_producer, gov_handoff_executor;
grant select, insert, update, delete on public.event_delayed, public.event_delayed_group, public.event_routing, public.event_routing_tally,
    public.event_escalation, public.event_consumed to gov_handoff_owner;
grant select on public.event_delayed, public.event_delayed_group, public.event_routing, public.event_routing_tally, public.event_escalation,
    public.event_consumed to gov_handoff_operator;
grant select on public.v_subscription_broadcast_used, public.v_event_universal_board, public.v_event_alerts_recent, public.v_health_open_issues,
    public.v_event_delayed, public.v_event_unified to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
