-- Read state: which events an actor has read, and who acknowledged an event.
--
-- An actor has a watermark in each stream of a domain: a position of event_feed. Events at or below it are read, except
-- those that the actor marked as unread. Events above it are unread, except those that the actor marked as read. So the
-- state is as large as what differs from the watermark, and the unread events are found without looking at the others.
-- The order of positions is the order of commits (0019). So an event that commits later is always above a watermark that
-- was set before.
--
-- Whether an event is read is decided in this order: by an exception of ours, by the watermark, by a row of event_read (the
-- live table), and last by the author: an actor has read its own events.

do $$
declare
    r text;
begin
    foreach r in array array['gov_handoff_producer', 'gov_handoff_executor'] loop
        begin
            execute format('create role %I nologin', r);
        exception when duplicate_object or unique_violation then
            null;  -- here already, or made by another database of this cluster a moment ago
        end;
    end loop;
end
$$;
grant usage on schema public to gov_handoff_producer, gov_handoff_executor;

create table public.event_read_mark (
    actor_ref    text        not null,
    event_domain text        not null,
    event_stream text        not null,
    through      bigint      not null,
    updated_at   timestamptz not null default clock_timestamp(),
    primary key (actor_ref, event_domain, event_stream)
) with (fillfactor = 70);
comment on table public.event_read_mark is 'the watermark of each actor in each stream of a domain: what is at or below it is read';
comment on column public.event_read_mark.actor_ref is 'the actor';
comment on column public.event_read_mark.event_domain is 'the domain';
comment on column public.event_read_mark.event_stream is 'the stream';
comment on column public.event_read_mark.through is 'a position of event_feed';
comment on column public.event_read_mark.updated_at is 'when the watermark moved';

create table public.event_read_exception (
    actor_ref text    not null,
    pos       bigint  not null,
    is_read   boolean not null,
    primary key (actor_ref, pos)
);
create index event_read_exception_unread on public.event_read_exception (actor_ref, pos) where not is_read;
comment on table public.event_read_exception is 'events that an actor read above its watermark, or marked as unread';
comment on column public.event_read_exception.actor_ref is 'the actor';
comment on column public.event_read_exception.pos is 'the position of the event in event_feed';
comment on column public.event_read_exception.is_read is 'true: read, above the watermark; false: unread, whatever the watermark says';

create table public.event_delivery (
    event_id     uuid        not null,
    actor_ref    text        not null,
    via          text,
    delivered_at timestamptz not null default clock_timestamp(),
    acked_at     timestamptz,
    acked_by     text,
    note         text,
    primary key (event_id, actor_ref),
    constraint event_delivery_ack_whole check ((acked_at is null) = (acked_by is null)),
    constraint event_delivery_note_short check (length(note) <= 1000)
);
comment on table public.event_delivery is 'recipients of events that are acknowledged, and their acknowledgements; only for the streams task, review and alert';
comment on column public.event_delivery.event_id is 'the event';
comment on column public.event_delivery.actor_ref is 'the recipient';
comment on column public.event_delivery.via is 'the group through which it is a recipient, or itself; null for a broadcast';
comment on column public.event_delivery.delivered_at is 'when the recipient was found';
comment on column public.event_delivery.acked_at is 'when it was acknowledged; null while nobody did';
comment on column public.event_delivery.acked_by is 'the actor who acknowledged it: the recipient, or another member of its group';
comment on column public.event_delivery.note is 'what the actor said about it';

-- The streams of each domain that the feed has. Each step of the recursion is one probe of the index.
create function gov_handoff.gov_feed_streams(p_domain text, p_stream text)
returns table (event_domain text, event_stream text) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with recursive s as (
        (select f.event_domain, f.event_stream from public.event_feed f order by f.event_domain, f.event_stream limit 1)
        union all
        select n.event_domain, n.event_stream
          from s cross join lateral (
              select f.event_domain, f.event_stream from public.event_feed f
               where (f.event_domain, f.event_stream) > (s.event_domain, s.event_stream)
               order by f.event_domain, f.event_stream limit 1) n)
    select s.event_domain, s.event_stream from s
     where (p_domain is null or s.event_domain = p_domain) and (p_stream is null or s.event_stream = p_stream)
$$;
comment on function gov_handoff.gov_feed_streams(text, text) is 'the streams of each domain that the feed has';

-- The types of each stream that the feed has, found as its streams are.
create function gov_handoff.gov_feed_types(p_domain text, p_stream text)
returns table (event_domain text, event_stream text, event_type text) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with recursive t as (
        (select f.event_domain, f.event_stream, f.event_type from public.event_feed f
          order by f.event_domain, f.event_stream, f.event_type limit 1)
        union all
        select n.event_domain, n.event_stream, n.event_type
          from t cross join lateral (
              select f.event_domain, f.event_stream, f.event_type from public.event_feed f
               where (f.event_domain, f.event_stream, f.event_type) > (t.event_domain, t.event_stream, t.event_type)
               order by f.event_domain, f.event_stream, f.event_type limit 1) n)
    select t.event_domain, t.event_stream, t.event_type from t
     where (p_domain is null or t.event_domain = p_domain) and (p_stream is null or t.event_stream = p_stream)
$$;
comment on function gov_handoff.gov_feed_types(text, text) is 'the types of each stream of the feed';

-- Where in the feed there may be events for an actor: whole streams (the type is null), or single types of a stream. A type that
-- is left out has no event for the actor, whatever its scope, its payload and its author. So a reader of a rare type, or one who
-- muted a busy one, does not pay for the events between.
--
-- Of the rows of one recipient that match a type, the first step decides (event_resolution). A row without scope and filter
-- matches every event of the type; the others may match. So at or before the lowest step that has such a row:
--   may_open      some event may reach the recipient
--   decides       every event is decided by a row of the recipient, muted or not
--   surely_open   every event reaches the recipient, so none is a broadcast
create function gov_handoff.gov_receivable(p_actor text, p_domain text, p_stream text)
returns table (event_domain text, event_stream text, event_type text) language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with recursive mine (ref) as (
        values (p_actor)
        union
        select m.group_ref from mine g join public.event_actor_member m on m.member_ref = g.ref
    ), matched as materialized (
        select t.event_domain, t.event_stream, t.event_type, s.recipient_ref, s.mute, k.step,
               s.scope_subject_table is null and coalesce(s.scope_filter, '{}') = '{}' as always
          from gov_handoff.gov_feed_types(p_domain, p_stream) t
          join public.event_subscription s on (select gov_handoff.gov_subscription_enabled())
         cross join lateral (select gov_handoff.gov_subscription_step(s.event_domain, s.event_type, s.event_stream,
                                                                      t.event_domain, t.event_type, t.event_stream) as step) k
         where k.step is not null
    ), placed as (
        select m.*, min(m.step) filter (where m.always) over (partition by m.event_domain, m.event_stream, m.event_type, m.recipient_ref) as decisive,
               bool_or(m.mute and m.always)
                   over (partition by m.event_domain, m.event_stream, m.event_type, m.recipient_ref, m.step) as outweighed
          from matched m
    ), recipient as (
        select p.event_domain, p.event_stream, p.event_type, p.recipient_ref,
               bool_or(not p.mute and not p.outweighed) as may_open, bool_or(p.decisive is not null) as decides,
               bool_or(p.decisive is not null) and not bool_or(p.mute) as surely_open
          from placed p where p.decisive is null or p.step <= p.decisive
         group by 1, 2, 3, 4
    ), judged as (
        select t.event_domain, t.event_stream, t.event_type,
               -- Only an escalation names its recipients itself.
               t.event_type like '%\_unacked'
               or case when d.own_decides then d.own_may
                       else d.own_may or d.group_may or not d.group_decides and not d.open
                            and exists (select from public.v_event_known_actor a where a.actor_ref = p_actor) end as may
          from gov_handoff.gov_feed_types(p_domain, p_stream) t
         cross join lateral (
             select coalesce(bool_or(r.may_open) filter (where r.recipient_ref = p_actor), false) as own_may,
                    coalesce(bool_or(r.decides) filter (where r.recipient_ref = p_actor), false) as own_decides,
                    coalesce(bool_or(r.may_open) filter (where r.recipient_ref <> p_actor and r.recipient_ref in (select m.ref from mine m)), false) as group_may,
                    coalesce(bool_or(r.decides) filter (where r.recipient_ref <> p_actor and r.recipient_ref in (select m.ref from mine m)), false) as group_decides,
                    coalesce(bool_or(r.surely_open), false) as open
               from recipient r
              where (r.event_domain, r.event_stream, r.event_type) = (t.event_domain, t.event_stream, t.event_type)) d
    ), stream as (
        select j.event_domain, j.event_stream, bool_and(j.may) as whole from judged j group by 1, 2
    )
    select s.event_domain, s.event_stream, null::text from stream s where s.whole
    union all
    select j.event_domain, j.event_stream, j.event_type
      from judged j join stream s on (s.event_domain, s.event_stream) = (j.event_domain, j.event_stream)
     where j.may and not s.whole
$$;
comment on function gov_handoff.gov_receivable(text, text, text) is 'streams, and types of streams, in which there may be events for an actor';

-- Of these events, those that the actor receives. The rules are those of event_resolution, and a test compares the two. Each
-- shape of event is decided once. A single event is looked at only where it matters: a subscription that matches the shape has
-- a scope filter, or the event names recipients itself.
create function gov_handoff.gov_received(p_actor text, p_ids uuid[], p_domain text[], p_type text[], p_stream text[], p_table text[])
returns uuid[] language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    v_groups text[] := array(select g.group_ref from public.v_event_actor_group g where g.actor_ref = p_actor and g.group_ref <> p_actor);
    v_known boolean := exists (select from public.v_event_known_actor k where k.actor_ref = p_actor);
    v_enabled boolean := gov_handoff.gov_subscription_enabled();
    v_received uuid[];
    v_unsure uuid[];
begin
    with given as materialized (
        select g.id, g.domain, g.type, g.stream, g.tab
          from unnest(p_ids, p_domain, p_type, p_stream, p_table) as g (id, domain, type, stream, tab)),
    shape as materialized (
        select k.domain, k.type, k.stream, k.tab,
               case when d.filtered then null
                    when d.own_mute is not null then not d.own_mute
                    when d.groups_mute is not null then not d.groups_mute
                    else v_known and d.open is not true end as receives
          from (select distinct g.domain, g.type, g.stream, g.tab from given g) k
         cross join lateral (
             select bool_or(t.filtered) as filtered, bool_or(t.mute) filter (where t.recipient_ref = p_actor) as own_mute,
                    bool_and(t.mute) filter (where t.recipient_ref = any (v_groups)) as groups_mute, bool_or(not t.mute) as open
               from (select distinct on (m.recipient_ref) m.recipient_ref, m.mute,
                            bool_or(m.filtered) over (partition by m.recipient_ref) as filtered
                       from (select s.recipient_ref, s.mute, coalesce(s.scope_filter, '{}') <> '{}' as filtered,
                                    gov_handoff.gov_subscription_step(s.event_domain, s.event_type, s.event_stream, k.domain, k.type, k.stream) as step
                               from public.event_subscription s
                              where v_enabled and (s.scope_subject_table is null or s.scope_subject_table = k.tab)) m
                      where m.step is not null
                      order by m.recipient_ref, m.step, m.mute desc) t) d),
    judged as materialized (
        select g.id, s.receives is null or exists (select from public.event_addressee a where a.event_id = g.id) as unsure, s.receives
          from given g
          join shape s on (s.domain, s.type, s.stream, coalesce(s.tab, '')) = (g.domain, g.type, g.stream, coalesce(g.tab, '')))
    select coalesce(array_agg(j.id) filter (where j.receives and not j.unsure), '{}'), coalesce(array_agg(j.id) filter (where j.unsure), '{}')
      into v_received, v_unsure
      from judged j;
    return v_received || array(
        select r.event_id from unnest(v_unsure) as u (id)
         cross join lateral (select n.event_id from gov_handoff.event_resolution n
                              where n.event_id = u.id and n.actor_ref = p_actor and not n.muted) r);
end
$$;
comment on function gov_handoff.gov_received(text, uuid[], text[], text[], text[], text[]) is 'of these events, those that the actor receives';

-- Of these events, those whose subject has been settled since: an issue that was resolved, a job that ended, an object that
-- was retired. The event that says so is not among them.
create function gov_handoff.gov_events_resolved(p_ids uuid[])
returns uuid[] language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select coalesce(array_agg(e.id), '{}')
      from public.event_outbox e
     where e.id = any (p_ids)
       and case e.event_subject_table
               when 'system_issues' then
                   e.safe_payload ->> 'state' is distinct from 'resolved' and e.event_type !~ '_(resolved|closed)$'
                   and exists (select from public.system_issues i
                                where i.coalesce_key = e.safe_payload ->> 'coalesce_key' and i.resolved_at > e.occurred_at)
               when 'job_queue' then
                   exists (select from public.job_queue j
                            where j.id = e.event_subject_ref and j.status in ('succeeded', 'cancelled', 'cleaned')
                              and j.updated_at > e.occurred_at)
               else e.event_type <> 'governance.handoff.object_retired'
                   and exists (select from public.gov_candidate_state c
                                where c.candidate_key = e.safe_payload ->> 'object_ref'
                                  and c.dirty_reason = 'governance.handoff.object_retired' and c.last_occurred_at > e.occurred_at) end
$$;
comment on function gov_handoff.gov_events_resolved(uuid[]) is 'of these events, those whose issue was resolved, whose job ended or whose object was retired since';

-- The next events that may be unread, above a position: those above the watermarks without an exception, and those that were
-- marked as unread. The arrays are where to look (gov_receivable), each with its watermark; p_own are positions of the actor's
-- own events (gov_unread_own). Every branch stops at its limit.
--
-- A stretch is asked for as a range of rows, in the order of one index. With plain equality the planner may prefer to walk the
-- positions of the whole feed and leave out the others.
create function gov_handoff.gov_unread_candidates(p_actor text, p_domains text[], p_streams text[], p_types text[], p_throughs bigint[],
                                             p_after bigint, p_limit int, p_own bigint[])
returns table (pos bigint, event_id uuid, event_domain text, event_type text, event_stream text, event_subject_table text)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
    select c.pos, c.event_id, c.event_domain, c.event_type, c.event_stream, c.event_subject_table
      from (select f.pos, f.event_id, f.event_domain, f.event_type, f.event_stream, f.event_subject_table
              from unnest(p_domains, p_streams, p_types, p_throughs) as k (domain, stream, type, through)
             cross join lateral (
                 select e.* from public.event_feed e
                  where e.event_domain = k.domain and (e.event_stream, e.pos) > (k.stream, greatest(k.through, p_after))
                    and e.event_stream <= k.stream
                    and e.actor_ref <> p_actor
                    and not exists (select from public.event_read_exception x where x.actor_ref = p_actor and x.pos = e.pos)
                    and not exists (select from public.event_read r where r.event_id = e.event_id and r.actor_ref = p_actor)
                  order by e.event_stream, e.pos limit p_limit) f
             where k.type is null
            union all
            select f.pos, f.event_id, f.event_domain, f.event_type, f.event_stream, f.event_subject_table
              from unnest(p_domains, p_streams, p_types, p_throughs) as k (domain, stream, type, through)
             cross join lateral (
                 select e.* from public.event_feed e
                  where e.event_domain = k.domain and e.event_stream = k.stream
                    and (e.event_type, e.pos) > (k.type, greatest(k.through, p_after)) and e.event_type <= k.type
                    and e.actor_ref <> p_actor
                    and not exists (select from public.event_read_exception x where x.actor_ref = p_actor and x.pos = e.pos)
                    and not exists (select from public.event_read r where r.event_id = e.event_id and r.actor_ref = p_actor)
                  order by e.event_type, e.pos limit p_limit) f
             where k.type is not null
            union all
            (select e.pos, e.event_id, e.event_domain, e.event_type, e.event_stream, e.event_subject_table
               from public.event_read_exception x join public.event_feed e on e.pos = x.pos
              where x.actor_ref = p_actor and not x.is_read and x.pos > p_after and coalesce(x.pos <> all (p_own), true)
                and (e.event_domain, e.event_stream) in (select k.domain, k.stream from unnest(p_domains, p_streams) as k (domain, stream))
              order by x.pos limit p_limit)
            union all
            (select e.pos, e.event_id, e.event_domain, e.event_type, e.event_stream, e.event_subject_table
               from unnest(p_own) as o (pos) join public.event_feed e on e.pos = o.pos
              where o.pos > p_after order by o.pos limit p_limit)) c
     order by c.pos limit p_limit
$$;
comment on function gov_handoff.gov_unread_candidates(text, text[], text[], text[], bigint[], bigint, int, bigint[])
    is 'the next events above a position that may be unread by an actor, before recipients and subjects are looked at';

-- Events that an actor emitted and has not read, among the latest 100,000 positions. No index finds an author, so each of these
-- positions is looked at, and none before them.
create function gov_handoff.gov_unread_own(p_actor text, p_domain text, p_stream text, p_limit int)
returns bigint[] language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
    select array(
        select e.pos from public.event_feed e
         where e.pos > (select h.last - 100000 from public.fn_event_feed_head() h)
           and e.actor_ref = p_actor
           and (p_domain is null or e.event_domain = p_domain) and (p_stream is null or e.event_stream = p_stream)
           and coalesce((select not x.is_read from public.event_read_exception x where x.actor_ref = p_actor and x.pos = e.pos),
                        not exists (select from public.event_read_mark m
                                     where m.actor_ref = p_actor and m.event_domain = e.event_domain and m.event_stream = e.event_stream
                                       and m.through >= e.pos)
                        and not exists (select from public.event_read r where r.event_id = e.event_id and r.actor_ref = p_actor))
         order by e.pos limit p_limit)
$$;
comment on function gov_handoff.gov_unread_own(text, text, text, int)
    is 'positions of events that an actor emitted and has not read, among the latest 100,000';

-- The unread events of an actor, the oldest first. Pages of candidates are read until enough of them are for the actor. A
-- page grows, so that a few events cost little and many cost few pages.
create function gov_handoff.gov_unread(p_actor text, p_domain text, p_stream text, p_limit int, p_include_self boolean, p_include_resolved boolean)
returns table (pos bigint, event_id uuid) language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_domains text[];
    v_streams text[];
    v_types text[];
    v_throughs bigint[];
    v_own bigint[] := case when p_include_self then gov_handoff.gov_unread_own(p_actor, p_domain, p_stream, p_limit) end;
    v_after bigint := 0;
    v_page int := least(greatest(p_limit, 16), 1024);
    v_left int := p_limit;
    v_pos bigint[];
    v_ids uuid[];
    v_domain text[];
    v_type text[];
    v_stream text[];
    v_table text[];
    v_found uuid[];
    v_resolved uuid[];
    v_shown bigint;
begin
    select array_agg(s.event_domain), array_agg(s.event_stream), array_agg(s.event_type), array_agg(coalesce(m.through, 0))
      into v_domains, v_streams, v_types, v_throughs
      from gov_handoff.gov_receivable(p_actor, p_domain, p_stream) s
      left join public.event_read_mark m
        on m.actor_ref = p_actor and m.event_domain = s.event_domain and m.event_stream = s.event_stream;
    while v_left > 0 loop
        select array_agg(c.pos order by c.pos), array_agg(c.event_id order by c.pos), array_agg(c.event_domain order by c.pos),
               array_agg(c.event_type order by c.pos), array_agg(c.event_stream order by c.pos), array_agg(c.event_subject_table order by c.pos)
          into v_pos, v_ids, v_domain, v_type, v_stream, v_table
          from gov_handoff.gov_unread_candidates(p_actor, v_domains, v_streams, v_types, v_throughs, v_after, v_page, v_own) c;
        exit when v_pos is null;
        v_found := gov_handoff.gov_received(p_actor, v_ids, v_domain, v_type, v_stream, v_table);
        if p_include_self then
            -- An author need not be a recipient to see its own events.
            v_found := v_found || array(select f.event_id from public.event_feed f where f.event_id = any (v_ids) and f.actor_ref = p_actor);
        end if;
        if not p_include_resolved then
            v_resolved := gov_handoff.gov_events_resolved(v_found);
            v_found := array(select f.id from unnest(v_found) as f (id) except select r.id from unnest(v_resolved) as r (id));
        end if;
        return query
            select u.pos, u.id from unnest(v_pos, v_ids) as u (pos, id)
             where u.id in (select f.id from unnest(v_found) as f (id)) order by u.pos limit v_left;
        get diagnostics v_shown = row_count;
        v_left := v_left - v_shown::int;
        exit when cardinality(v_pos) < v_page;
        v_after := v_pos[cardinality(v_pos)];
        v_page := least(v_page * 2, 8192);
    end loop;
end
$$;
comment on function gov_handoff.gov_unread(text, text, text, int, boolean, boolean) is 'positions and ids of the unread events of an actor, the oldest first';

-- Binds an actor to a database role, or, without a role, frees it again. Only members of that role, and operators, may then
-- read or acknowledge for the actor. Returns whether this changed anything.
create function gov_handoff.gov_actor_bind(p_actor text, p_role name)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform gov_handoff.gov_actor_note(p_actor, false);
    if p_role is not null and to_regrole(quote_ident(p_role)) is null then
        raise exception 'there is no role %', p_role using errcode = 'GH003';
    end if;
    update public.event_actor a set role_name = p_role where a.actor_ref = p_actor and a.role_name is distinct from p_role;
    return found;
end
$$;
comment on function gov_handoff.gov_actor_bind(text, name)
    is 'Binds an actor to the database role that may read and acknowledge for it; null frees it.';

-- Checks the actor's name and whether the session may act for it, and makes a new actor known, so that broadcasts reach it. A
-- session that can only read leaves it.
create function gov_handoff.gov_actor_note(p_actor text, p_lock boolean)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(btrim(p_actor), '') = '' then
        raise exception 'an actor is needed, such as user:name, agent:name, role:name, agency:name or svc:name' using errcode = 'GH003';
    elsif length(p_actor) > 500 then
        raise exception 'the name of an actor has at most 500 characters, not %', length(p_actor) using errcode = 'GH003';
    end if;
    if exists (select from public.event_actor a
                where a.actor_ref = p_actor and a.role_name is not null
                  and not coalesce(pg_has_role(session_user, to_regrole(quote_ident(a.role_name)), 'member'), false))
       and not pg_has_role(session_user, 'gov_handoff_operator', 'member') then
        raise exception 'role % may not act for %', session_user, p_actor using errcode = '42501',
            hint = 'an operator binds an actor to a role with gov_actor_bind';
    end if;
    if current_setting('transaction_read_only') = 'on' then
        return;
    end if;
    if not exists (select from public.event_actor a where a.actor_ref = p_actor) then
        insert into public.event_actor (actor_ref) values (p_actor) on conflict do nothing;
    end if;
    -- One change of an actor's read state at a time: the watermark and the exceptions depend on each other.
    if p_lock then
        perform from public.event_actor a where a.actor_ref = p_actor for update;
    end if;
end
$$;
comment on function gov_handoff.gov_actor_note(text, boolean) is 'makes an actor known; with p_lock its read state is changed by one session at a time';

-- The functions for consumers ---------------------------------------------------------------------------------------

create function public.fn_event_unread(p_actor text, p_domain text default null, p_stream text default null, p_limit int default 100,
                                       p_include_self boolean default false, p_include_resolved boolean default false)
returns table (pos bigint, event_id uuid, event_domain text, event_type text, event_stream text, event_severity text,
               event_subject_table text, event_subject_ref uuid, canonical_address text, actor_ref text, safe_payload jsonb,
               occurred_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
-- The events are fetched by their keys, however many the planner expects.
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    perform gov_handoff.gov_actor_note(p_actor, false);
    return query
        select u.pos, o.id, o.event_domain, o.event_type, o.event_stream, o.event_severity, o.event_subject_table, o.event_subject_ref,
               gov_handoff.gov_sendable(o.canonical_address), gov_handoff.gov_sendable(o.actor_ref),
               case when o.payload_classification = 'safe_metadata'
                         and (getdatabaseencoding() = 'UTF8' or gov_handoff.gov_sent(o.safe_payload::text) is not null)
                    then o.safe_payload end, o.occurred_at
          from gov_handoff.gov_unread(p_actor, p_domain, p_stream, least(greatest(coalesce(p_limit, 100), 0), 10000),
                                      coalesce(p_include_self, false), coalesce(p_include_resolved, false)) u
          join public.event_outbox o on o.id = u.event_id
         order by u.pos;
end
$$;
comment on function public.fn_event_unread(text, text, text, int, boolean, boolean)
    is 'The unread events of an actor, the oldest first, at most 10,000. Own events and events whose subject is resolved are left out unless asked for; own events are looked for among the latest 100,000 positions.';

create function public.fn_event_unread_count(p_actor text)
returns table (event_domain text, event_stream text, unread bigint, more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform gov_handoff.gov_actor_note(p_actor, false);
    return query
        select s.event_domain, s.event_stream, least(n.unread, 10000), n.unread > 10000
          from gov_handoff.gov_feed_streams(null, null) s
         cross join lateral (select count(*) as unread
                               from gov_handoff.gov_unread(p_actor, s.event_domain, s.event_stream, 10001, false, false)) n
         where n.unread > 0
         order by 1, 2;
end
$$;
comment on function public.fn_event_unread_count(text)
    is 'How many events an actor has not read, by domain and stream. Each is counted to 10,000; `more` says that there are more.';

-- Moves the watermark over the events behind it that need no looking at: read, written by the actor, or not for the actor.
-- Then their exceptions can go. Pages grow while everything in them can be passed; the work of one call is bounded.
create function gov_handoff.gov_read_compact(p_actor text, p_domain text, p_stream text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_from bigint := coalesce((select m.through from public.event_read_mark m
                                where m.actor_ref = p_actor and m.event_domain = p_domain and m.event_stream = p_stream), 0);
    v_through bigint := v_from;
    v_page int := 16;
    v_ids uuid[];
    v_rows bigint;
    v_domains text[];
    v_types text[];
    v_streams text[];
    v_tables text[];
    v_found uuid[];
    v_stop bigint;
    v_last bigint;
begin
    loop
        -- What is not read yet decides: those must be for somebody else.
        with page as materialized (
            select f.pos, f.event_id, f.event_type, f.event_subject_table,
                   coalesce((select x.is_read from public.event_read_exception x where x.actor_ref = p_actor and x.pos = f.pos),
                            f.actor_ref = p_actor
                            or exists (select from public.event_read r where r.event_id = f.event_id and r.actor_ref = p_actor)) as is_read
              from public.event_feed f
             where f.event_domain = p_domain and f.event_stream = p_stream and f.pos > v_through
             order by f.pos limit v_page)
        select count(*), max(p.pos), coalesce(array_agg(p.event_id) filter (where not p.is_read), '{}'),
               coalesce(array_agg(p_domain) filter (where not p.is_read), '{}'),
               coalesce(array_agg(p.event_type) filter (where not p.is_read), '{}'),
               coalesce(array_agg(p_stream) filter (where not p.is_read), '{}'),
               coalesce(array_agg(p.event_subject_table) filter (where not p.is_read), '{}')
          into v_rows, v_last, v_ids, v_domains, v_types, v_streams, v_tables
          from page p;
        exit when v_rows = 0;
        v_found := gov_handoff.gov_received(p_actor, v_ids, v_domains, v_types, v_streams, v_tables);
        select min(f.pos) into v_stop
          from public.event_feed f
         where f.event_id = any (v_found);
        -- Marked as unread: stays, whoever it is for.
        v_stop := least(v_stop, (select min(x.pos) from public.event_read_exception x
                                  where x.actor_ref = p_actor and not x.is_read and x.pos > v_through and x.pos <= v_last
                                    and exists (select from public.event_feed f
                                                 where f.pos = x.pos and f.event_domain = p_domain and f.event_stream = p_stream)));
        if v_stop is not null then
            v_through := coalesce((select max(f.pos) from public.event_feed f
                                    where f.event_domain = p_domain and f.event_stream = p_stream and f.pos > v_through and f.pos < v_stop), v_through);
            exit;
        end if;
        v_through := v_last;
        exit when v_rows < v_page or v_page >= 4096;
        v_page := v_page * 4;
    end loop;
    if v_through > v_from then
        insert into public.event_read_mark as m (actor_ref, event_domain, event_stream, through)
        values (p_actor, p_domain, p_stream, v_through)
        on conflict (actor_ref, event_domain, event_stream) do update
            set through = greatest(m.through, excluded.through), updated_at = clock_timestamp();
        delete from public.event_read_exception x
         using public.event_feed f
         where x.actor_ref = p_actor and x.is_read and x.pos > v_from and x.pos <= v_through
           and f.pos = x.pos and f.event_domain = p_domain and f.event_stream = p_stream;
    end if;
end
$$;
comment on function gov_handoff.gov_read_compact(text, text, text) is 'moves the watermark of an actor over events that need no looking at, and removes their exceptions';

create function public.fn_event_mark_read(p_actor text, p_events uuid[])
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
    s record;
begin
    perform gov_handoff.gov_actor_note(p_actor, true);
    with asked as materialized (
        select distinct o.id, f.pos, f.event_domain, f.event_stream
          from unnest(p_events) as e (id) join public.event_outbox o on o.id = e.id left join public.event_feed f on f.event_id = o.id),
    placed as materialized (
        select a.id, a.pos, a.pos <= coalesce(m.through, 0) as below
          from asked a
          left join public.event_read_mark m
            on m.actor_ref = p_actor and m.event_domain = a.event_domain and m.event_stream = a.event_stream
         where a.pos is not null),
    gone as (
        delete from public.event_read_exception x using placed p
         where p.below and x.actor_ref = p_actor and x.pos = p.pos),
    noted as (
        insert into public.event_read_exception as x (actor_ref, pos, is_read)
        select p_actor, p.pos, true from placed p where not p.below
        on conflict (actor_ref, pos) do update set is_read = true where not x.is_read),
    -- An event that has no position yet: a row of the live table says it.
    early as (
        insert into public.event_read (event_id, actor_ref)
        select a.id, p_actor from asked a
         where a.pos is null and not exists (select from public.event_read r where r.event_id = a.id and r.actor_ref = p_actor)
        on conflict do nothing)
    select count(*) into v_n from asked;
    for s in
        select distinct f.event_domain as domain, f.event_stream as stream
          from unnest(p_events) as e (id) join public.event_feed f on f.event_id = e.id
    loop
        perform gov_handoff.gov_read_compact(p_actor, s.domain, s.stream);
    end loop;
    return v_n;
end
$$;
comment on function public.fn_event_mark_read(text, uuid[]) is 'Marks events as read by an actor. Returns how many of them exist.';

create function public.fn_event_mark_unread(p_actor text, p_events uuid[])
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
begin
    perform gov_handoff.gov_actor_note(p_actor, true);
    insert into public.event_read_exception as x (actor_ref, pos, is_read)
    select distinct p_actor, f.pos, false
      from unnest(p_events) as e (id) join public.event_feed f on f.event_id = e.id
    on conflict (actor_ref, pos) do update set is_read = false;
    get diagnostics v_n = row_count;
    return v_n;
end
$$;
comment on function public.fn_event_mark_unread(text, uuid[]) is 'Marks events as unread again, own events as well. Returns how many of them are in the feed.';

-- One row for each stream, whatever the number of events. p_through is a position that the caller has seen. Without one,
-- everything that the feed has given out is read. A position beyond that is taken as the end of the feed: what commits
-- later has a higher one, and stays unread.
create function public.fn_event_mark_all_read(p_actor text, p_through bigint default null, p_domain text default null, p_stream text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_through bigint;
begin
    perform gov_handoff.gov_actor_note(p_actor, true);
    select least(p_through, h.last) into v_through from public.fn_event_feed_head() h;
    insert into public.event_read_mark as m (actor_ref, event_domain, event_stream, through)
    select p_actor, s.event_domain, s.event_stream, v_through from gov_handoff.gov_feed_streams(p_domain, p_stream) s
    on conflict (actor_ref, event_domain, event_stream) do update
        set through = excluded.through, updated_at = clock_timestamp() where m.through < excluded.through;
    delete from public.event_read_exception x
     where x.actor_ref = p_actor and x.pos <= v_through
       and (p_domain is null and p_stream is null
            or exists (select from public.event_feed f
                        where f.pos = x.pos and (p_domain is null or f.event_domain = p_domain) and (p_stream is null or f.event_stream = p_stream)));
    return v_through;
end
$$;
comment on function public.fn_event_mark_all_read(text, bigint, text, text)
    is 'Marks everything as read up to a position, or to the end of the feed; of one domain or stream, or of all. Returns the position. What commits later stays unread.';

-- Notes the recipients of events that are acknowledged, and returns how many rows are new. Each shape of event is resolved
-- once, by one event of that shape; events that a scope filter or addressees set apart are resolved one by one. An event that
-- only a broadcast reaches gets its rows when somebody acknowledges it.
--
-- A reader's transaction that acknowledges an event may stay open, and its rows are in the way. Then the events are halved,
-- and those in whose way it stands are left out: it adds the rows of all recipients itself, and so does whoever acknowledges
-- the event if it rolls back. After two seconds all that remain are left out, however many a reader holds.
create function gov_handoff.gov_event_deliver(p_ids uuid[], p_until timestamptz default null)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '50ms'
as $$
declare
    v_n bigint;
    v_half int := cardinality(p_ids) / 2;
    v_until timestamptz := coalesce(p_until, clock_timestamp() + interval '2 seconds');
begin
    with given as materialized (
        select o.id, o.event_domain, o.event_type, o.event_stream, coalesce(o.event_subject_table, '') as tab,
               exists (select from public.event_addressee a where a.event_id = o.id)
               or exists (select from public.event_subscription s
                           where coalesce(s.scope_filter, '{}') <> '{}'
                             and gov_handoff.gov_subscription_step(s.event_domain, s.event_type, s.event_stream,
                                                                   o.event_domain, o.event_type, o.event_stream) is not null) as apart
          from public.event_outbox o
         where o.id = any (p_ids) and o.event_stream in ('task', 'review', 'alert')),
    sample as materialized (
        select distinct on (g.event_domain, g.event_type, g.event_stream, g.tab) g.* from given g where not g.apart),
    found as (
        select g.id, r.actor_ref, r.via
          from sample s
         cross join lateral (select v.actor_ref, v.via from public.v_event_recipient v where v.event_id = s.id and v.step < 6) r
          join given g on not g.apart and (g.event_domain, g.event_type, g.event_stream, g.tab)
                                        = (s.event_domain, s.event_type, s.event_stream, s.tab)
        union all
        select g.id, r.actor_ref, r.via
          from given g
         cross join lateral (select v.actor_ref, v.via from public.v_event_recipient v where v.event_id = g.id and v.step < 6) r
         where g.apart)
    insert into public.event_delivery (event_id, actor_ref, via)
    select f.id, f.actor_ref, f.via from found f order by f.id, f.actor_ref
    on conflict do nothing;
    get diagnostics v_n = row_count;
    return v_n;
exception when lock_not_available then
    if v_half = 0 or clock_timestamp() > v_until then
        return 0;
    end if;
    return gov_handoff.gov_event_deliver(p_ids[:v_half], v_until) + gov_handoff.gov_event_deliver(p_ids[v_half + 1:], v_until);
end
$$;
comment on function gov_handoff.gov_event_deliver(uuid[], timestamptz) is 'notes the recipients of events of the streams that are acknowledged';

create function public.fn_event_ack(p_actor text, p_event uuid, p_note text default null)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_stream text := (select o.event_stream from public.event_outbox o where o.id = p_event);
    v_n bigint;
begin
    perform gov_handoff.gov_actor_note(p_actor, true);
    if v_stream is null then
        raise exception 'there is no event %', p_event using errcode = 'GH003';
    elsif v_stream not in ('task', 'review', 'alert') then
        raise exception 'events of the stream % are read, not acknowledged; task, review and alert are', v_stream using errcode = 'GH003';
    elsif length(p_note) > 1000 then
        raise exception 'the note has % characters; at most 1000 are kept', length(p_note) using errcode = 'GH003';
    end if;
    insert into public.event_delivery (event_id, actor_ref, via)
    select v.event_id, v.actor_ref, v.via from public.v_event_recipient v where v.event_id = p_event order by v.actor_ref
    on conflict do nothing;
    if not exists (select from gov_handoff.event_resolution r where r.event_id = p_event and r.actor_ref = p_actor)
       and not exists (select from public.event_delivery d where d.event_id = p_event and d.actor_ref = p_actor) then
        raise exception '% is not a recipient of event %', p_actor, p_event using errcode = 'GH003';
    end if;
    insert into public.event_delivery (event_id, actor_ref) values (p_event, p_actor) on conflict do nothing;
    -- It counts for the groups of the actor, and so for their other members.
    update public.event_delivery d
       set acked_at = clock_timestamp(), acked_by = p_actor, note = case when d.actor_ref = p_actor then p_note end
     where d.event_id = p_event and d.acked_at is null
       and (d.actor_ref = p_actor
            or exists (select from public.v_event_actor_group g where g.actor_ref = p_actor and g.group_ref in (d.actor_ref, d.via)
                          and g.group_ref <> p_actor));
    get diagnostics v_n = row_count;
    perform public.fn_event_mark_read(p_actor, array[p_event]);
    return v_n > 0;
end
$$;
comment on function public.fn_event_ack(text, uuid, text)
    is 'Acknowledges an event of the streams task, review or alert, for the actor and for the groups it belongs to. False: it was acknowledged already.';

-- What an actor sees: its events, the newest first, with their state. Page on with the lowest position as p_before. A call looks
-- at about 100,000 events at most. If it stops there, a last row with the state `more` has the position from which to go on, and
-- no event. It is the lowest position of the answer, so a caller that pages on misses nothing.
create function public.fn_event_board(p_actor text, p_domain text default null, p_stream text default null, p_severity text default null,
                                      p_limit int default 50, p_before bigint default null)
returns table (pos bigint, event_id uuid, event_domain text, event_type text, event_stream text, event_severity text,
               canonical_address text, actor_ref text, occurred_at timestamptz, state text, acked_by text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
    v_before bigint := coalesce(p_before, 9223372036854775807);
    v_left int := least(greatest(coalesce(p_limit, 50), 0), 1000);
    v_page int := greatest(v_left, 64);
    v_looked int := 0;
    v_ids uuid[];
    v_domain text[];
    v_type text[];
    v_stream text[];
    v_table text[];
    v_found uuid[];
    v_resolved uuid[];
    v_shown bigint;
    v_low bigint;
begin
    perform gov_handoff.gov_actor_note(p_actor, false);
    while v_left > 0 and v_looked < 100000 loop
        select array_agg(f.event_id), array_agg(f.event_domain), array_agg(f.event_type), array_agg(f.event_stream),
               array_agg(f.event_subject_table), min(f.pos)
          into v_ids, v_domain, v_type, v_stream, v_table, v_low
          from (select e.* from gov_handoff.gov_feed_streams(p_domain, p_stream) s
                 cross join lateral (select b.* from public.event_feed b
                                      where b.event_domain = s.event_domain and b.event_stream = s.event_stream and b.pos < v_before
                                        and (p_severity is null or b.event_severity = p_severity)
                                      order by b.event_domain desc, b.event_stream desc, b.pos desc limit v_page) e
                 order by e.pos desc limit v_page) f;
        exit when v_ids is null;
        v_found := gov_handoff.gov_received(p_actor, v_ids, v_domain, v_type, v_stream, v_table)
                   || array(select f.event_id from public.event_feed f where f.event_id = any (v_ids) and f.actor_ref = p_actor);
        v_resolved := gov_handoff.gov_events_resolved(v_found);
        return query
            select f.pos, o.id, o.event_domain, o.event_type, o.event_stream, o.event_severity,
                   gov_handoff.gov_sendable(o.canonical_address), gov_handoff.gov_sendable(o.actor_ref), o.occurred_at,
                   case when d.acked_at is not null then 'acknowledged'
                        when o.id = any (v_resolved) then 'resolved'
                        when x.is_read then 'read'
                        when not x.is_read then 'unread'
                        when o.actor_ref = p_actor then 'implicit_self'
                        when f.pos <= m.through or r.event_id is not null then 'read'
                        else 'unread' end,
                   d.acked_by
              from public.event_feed f
              join public.event_outbox o on o.id = f.event_id
              left join public.event_read_mark m
                on m.actor_ref = p_actor and m.event_domain = f.event_domain and m.event_stream = f.event_stream
              left join public.event_read_exception x on x.actor_ref = p_actor and x.pos = f.pos
              left join public.event_read r on r.event_id = f.event_id and r.actor_ref = p_actor
              left join public.event_delivery d on d.event_id = f.event_id and d.actor_ref = p_actor
             where f.event_id = any (v_found)
             order by f.pos desc limit v_left;
        get diagnostics v_shown = row_count;
        v_left := v_left - v_shown::int;
        v_looked := v_looked + cardinality(v_ids);
        exit when cardinality(v_ids) < v_page;
        v_before := v_low;
        if v_left > 0 and v_looked >= 100000 then
            pos := v_low;
            state := 'more';
            return next;
        end if;
    end loop;
end
$$;
comment on function public.fn_event_board(text, text, text, text, int, bigint)
    is 'What an actor sees: its events, the newest first, each with its state: unread, read, implicit_self, acknowledged or resolved. Page on with the lowest position as p_before. A last row with the state `more` and no event says that the call looked at 100,000 events and stopped.';

do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace
               and p.proname in ('gov_feed_streams', 'gov_feed_types', 'gov_receivable', 'gov_received', 'gov_events_resolved', 'gov_unread_candidates',
                                 'gov_unread', 'gov_unread_own', 'gov_actor_bind', 'gov_actor_note', 'gov_read_compact', 'gov_event_deliver')
            or p.pronamespace = 'public'::regnamespace
               and p.proname in ('fn_event_unread', 'fn_event_unread_count', 'fn_event_mark_read', 'fn_event_mark_unread',
                                 'fn_event_mark_all_read', 'fn_event_ack', 'fn_event_board')
    loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
-- A reader names itself: a role that may read is trusted to say for which actor, unless the actor is bound to a role.
grant execute on function gov_handoff.gov_actor_bind(text, name) to gov_handoff_operator;
grant execute on function public.fn_event_unread(text, text, text, int, boolean, boolean), public.fn_event_unread_count(text),
    public.fn_event_mark_read(text, uuid[]), public.fn_event_mark_unread(text, uuid[]), public.fn_event_mark_all_read(text, bigint, text, text),
    public.fn_event_ack(text, uuid, text), public.fn_event_board(text, text, text, text, int, bigint)
    to gov_handoff_operator, gov_handoff_producer, gov_handoff_executor;
grant execute on function public.fn_event_recipients(uuid), public.fn_event_feed_head(), public.fn_event_feed(bigint, int, text, text, text)
    to gov_handoff_producer, gov_handoff_executor;
grant select, insert, update, delete on public.event_read_mark, public.event_read_exception, public.event_delivery to gov_handoff_owner;
grant select, insert on public.event_read to gov_handoff_owner;
grant select on public.job_queue, public.event_feed to gov_handoff_owner;
grant select on public.event_read_mark, public.event_read_exception, public.event_delivery to gov_handoff_operator;
