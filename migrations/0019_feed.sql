-- The feed: one position for every event, in an order that a reader can follow.
--
-- An outbox cannot be followed by its own columns. Its ids and times are taken before the commit, so an event may appear
-- behind a reader that has passed it. A position is taken behind a lock that is held until the commit. So the order of
-- positions is the order of commits: a reader that sees a position sees every lower one, and nothing is ever added below.
--
-- Who gives positions, and to what:
--
--   gov_handoff_apply, gov_handoff_apply_one   to their own signals, in the commit that records them
--   gov_event_feed (worker)                    to all other events: the ids in gov_feed_inbox, which gates leave in the
--                                              transaction that inserts the event; and whatever a pass over the outbox
--                                              finds without a position, because somebody inserted it directly
--
-- The lock is a table, `gov_handoff.feed`, as in 0002. The next position is read from the feed itself, at the right edge
-- of its key. A counter row would be updated for each event, and would leave a dead version behind each time; while an old
-- snapshot is held nobody may remove them. 0002 has the order of all locks. No gate that a user's transaction calls takes
-- this one, because users may leave transactions open.
create table gov_handoff.feed ();
comment on table gov_handoff.feed is 'a lock without rows: who holds it in exclusive mode gives positions of event_feed, until its commit';

create table public.event_feed (
    pos                 bigint not null primary key,
    event_id            uuid   not null unique,
    event_domain        text   not null,
    event_type          text   not null,
    event_stream        text   not null,
    event_severity      text,
    event_subject_table text,
    event_subject_ref   uuid,
    actor_ref           text   not null
);
comment on table public.event_feed is 'every event of event_outbox, by a position that grows in commit order; read it with fn_event_feed';
-- A reader of one domain or stream must not walk over all others.
create index event_feed_stream on public.event_feed (event_domain, event_stream, pos);
-- Nor one of a rare type over the others of its stream.
create index event_feed_type on public.event_feed (event_domain, event_stream, event_type, pos);

-- Events that a gate inserted and that have no position yet. Row and event commit together. The worker deletes the row in
-- the commit that gives the position. There is no key: an event that is noted twice gets one position.
create table public.gov_feed_inbox (
    event_id uuid not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table public.gov_feed_inbox is 'ids of events that wait for their position in event_feed';

-- `low`: the highest position that retention removed. Positions at or below it may be incomplete.
create table public.gov_feed_state (
    one bool   not null primary key default true,
    low bigint not null default 0,
    constraint gov_feed_state_is_one_row check (one)
);
comment on table public.gov_feed_state is 'one row: the highest position of event_feed that retention removed';
insert into public.gov_feed_state default values;

-- Giving positions -------------------------------------------------------------------------------------------------

-- Leaves events for the worker. Every gate that inserts into the outbox calls this in the same transaction, except those
-- that give positions themselves. It takes no lock.
create function gov_handoff.gov_feed_note(p_ids uuid[])
returns void language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into public.gov_feed_inbox (event_id) select u.id from unnest(p_ids) as u (id)
$$;
comment on function gov_handoff.gov_feed_note(uuid[]) is 'leaves events that a gate inserted for the worker gov_event_feed';

-- Takes the lock and returns the highest position. The two are separate statements: the second one has a snapshot of its
-- own, which shows what the former holder of the lock committed.
create function gov_handoff.gov_feed_lock()
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    lock table gov_handoff.feed in exclusive mode;
    return (select greatest(s.low, (select max(f.pos) from public.event_feed f)) from public.gov_feed_state s);
end
$$;
comment on function gov_handoff.gov_feed_lock() is 'takes the lock of the feed until the commit; returns the highest position';

-- Gives positions to those of these events that are in the outbox and have none. Returns how many.
create function gov_handoff.gov_feed_append(p_ids uuid[])
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_last bigint := gov_handoff.gov_feed_lock();
    v_n bigint;
begin
    insert into public.event_feed (pos, event_id, event_domain, event_type, event_stream, event_severity, event_subject_table,
        event_subject_ref, actor_ref)
    select v_last + row_number() over (order by o.created_at, o.id), o.id, o.event_domain, o.event_type, o.event_stream,
           o.event_severity, o.event_subject_table, o.event_subject_ref, o.actor_ref
      from public.event_outbox o
     where o.id = any (p_ids) and not exists (select from public.event_feed f where f.event_id = o.id);
    get diagnostics v_n = row_count;
    return v_n;
end
$$;
comment on function gov_handoff.gov_feed_append(uuid[]) is 'gives positions to those of these events that have none';

-- The last step of a batch before its fence: positions for the signals that are new (p_new). The rows are at hand, so the
-- outbox is not read again.
create function gov_handoff.gov_feed_signals(p_new uuid[], r_table text[], r_kind text[], r_stream text[], r_severity text[],
                                        s_id uuid[], s_ref uuid[], s_rule int[], s_actor text[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_last bigint;
    v_n bigint := 0;
begin
    if cardinality(p_new) = cardinality(s_id) then
        v_last := gov_handoff.gov_feed_lock();
        insert into public.event_feed (pos, event_id, event_domain, event_type, event_stream, event_severity,
            event_subject_table, event_subject_ref, actor_ref)
        select v_last + s.n, s.id, 'governance', r_kind[s.rule], r_stream[s.rule], r_severity[s.rule], r_table[s.rule], s.ref,
               s.actor
          from unnest(s_id, s_ref, s_rule, s_actor) with ordinality as s (id, ref, rule, actor, n)
        on conflict (event_id) do nothing;
        get diagnostics v_n = row_count;
        if v_n = cardinality(p_new) then
            return;
        end if;
        -- A signal that was lost from the outbox and is recorded again keeps the position that it has. The positions that
        -- it would have taken are closed up.
        delete from public.event_feed where pos > v_last;
    end if;
    perform gov_handoff.gov_feed_append(p_new);
end
$$;
comment on function gov_handoff.gov_feed_signals(uuid[], text[], text[], text[], text[], uuid[], uuid[], int[], text[])
    is 'gives positions to the new signals of a batch, in the commit that records them';

-- A page of the worker gov_event_feed: up to p_limit events of the inbox. Returns how many rows left the inbox and how many
-- events got a position. Without work nothing is written.
create function gov_handoff.gov_feed_take(p_worker text, p_owner text, p_term bigint, p_limit int, p_begins boolean)
returns table (taken bigint, fed bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_ids uuid[];
begin
    -- The array keeps the planner from running the LIMIT again.
    with gone as (
        delete from public.gov_feed_inbox i
         where i.ctid = any (array(select n.ctid from public.gov_feed_inbox n limit p_limit))
        returning i.event_id
    )
    select array_agg(g.event_id), count(*) into v_ids, taken from gone g;
    fed := 0;
    if taken > 0 then
        fed := gov_handoff.gov_feed_append(v_ids);
        perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, 'event_feed', taken, fed, 0, p_begins, taken < p_limit);
    end if;
    return next;
end
$$;
comment on function gov_handoff.gov_feed_take(text, text, bigint, int, boolean) is 'a page of gov_event_feed: events of the inbox get positions';

-- Gives positions to events that a pass over the outbox found without one. Returns how many it gave.
create function gov_handoff.gov_feed_add(p_worker text, p_owner text, p_term bigint, p_ids uuid[], p_begins boolean, p_ends boolean)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint := 0;
begin
    if cardinality(p_ids) > 0 then
        v_n := gov_handoff.gov_feed_append(p_ids);
    end if;
    perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, 'event_feed', cardinality(p_ids), v_n, 0, p_begins, p_ends);
    return v_n;
end
$$;
comment on function gov_handoff.gov_feed_add(text, text, bigint, uuid[], boolean, boolean)
    is 'gives positions to events that a pass over the outbox found without one';

-- Retention --------------------------------------------------------------------------------------------------------

-- Retired events leave the feed in the same commit. The mark says up to where the feed may be incomplete, so that a
-- reader that is behind is told so, and skips nothing unknowingly.
create function gov_handoff.gov_feed_retire(p_ids uuid[])
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_low bigint;
    v_n bigint;
begin
    -- Behind the lock no event gets a position between this deletion and the commit.
    perform gov_handoff.gov_feed_lock();
    with gone as (
        delete from public.event_feed f where f.event_id = any (p_ids) returning f.pos
    )
    select count(*), max(g.pos) into v_n, v_low from gone g;
    update public.gov_feed_state s set low = v_low where s.low < v_low;
    return v_n;
end
$$;
comment on function gov_handoff.gov_feed_retire(uuid[]) is 'removes retired events from the feed and notes up to where it is incomplete';

-- Reading ----------------------------------------------------------------------------------------------------------

-- `low`: the highest position that retention removed; `last`: the highest position there is.
create function public.fn_event_feed_head()
returns table (low bigint, last bigint) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.low, greatest(s.low, (select max(f.pos) from public.event_feed f)) from public.gov_feed_state s
$$;
comment on function public.fn_event_feed_head() is 'the highest position that retention removed, and the highest position there is';

-- Up to p_limit events above p_after, in the order of positions. Whoever calls this again with the highest position that
-- was returned sees every event exactly once. NULL as p_after begins with the oldest event that is kept.
--
-- With a filter, fewer rows than p_limit mean that there is nothing more for this filter. A reader of rare events may
-- then resume at a head (`fn_event_feed_head`) that it read before this call.
--
-- STABLE: the checks and the rows are read in one snapshot, so retention cannot come in between.
--
-- In a database that is not in UTF-8 a text may have no equivalent there. It is NULL, so that the events behind it are read.
create function public.fn_event_feed(p_after bigint default null, p_limit int default 1000, p_domain text default null,
                                     p_type text default null, p_stream text default null)
returns table (pos bigint, event_id uuid, event_domain text, event_type text, event_stream text, event_severity text,
               event_subject_table text, event_subject_ref uuid, actor_ref text, canonical_address text,
               safe_payload jsonb, occurred_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_low bigint;
    v_last bigint;
    v_limit int := least(greatest(coalesce(p_limit, 1000), 0), 100000);
begin
    select h.low, h.last into v_low, v_last from public.fn_event_feed_head() h;
    if p_after < v_low then
        raise exception 'events up to position % were retired, and you have read up to position %: some may be missing', v_low, p_after
            using errcode = 'GH003', hint = 'catch up from the source of truth, then go on after position ' || v_low
                || '; NULL as position reads what is left';
    elsif p_after > v_last and not pg_is_in_recovery() then
        raise exception 'you have read up to position %, and the feed ends at position %: this is another feed, or an older one', p_after, v_last
            using errcode = 'GH003', hint = 'was the database restored? catch up from the source of truth, then go on after position ' || v_last;
    end if;
    if p_domain is null and p_type is null and p_stream is null then
        return query
            select f.pos, f.event_id, f.event_domain, f.event_type, f.event_stream, f.event_severity, f.event_subject_table,
                   f.event_subject_ref, gov_handoff.gov_sendable(f.actor_ref), gov_handoff.gov_sendable(o.canonical_address),
                   case when o.payload_classification = 'safe_metadata'
                             and (getdatabaseencoding() = 'UTF8' or gov_handoff.gov_sent(o.safe_payload::text) is not null)
                        then o.safe_payload end, o.occurred_at
              from (select e.* from public.event_feed e where e.pos > coalesce(p_after, 0) order by e.pos limit v_limit) f
              left join public.event_outbox o on o.id = f.event_id
             order by f.pos;
        return;
    end if;
    -- Each stream of a domain, and each type of a stream, is a stretch of an index, already in order. Only the stretches that
    -- are asked for are read. They are asked for as ranges of rows, in the order of one index: with plain equality the planner
    -- may prefer to walk all positions and leave out the others.
    return query
        select f.pos, f.event_id, f.event_domain, f.event_type, f.event_stream, f.event_severity, f.event_subject_table,
               f.event_subject_ref, gov_handoff.gov_sendable(f.actor_ref), gov_handoff.gov_sendable(o.canonical_address),
               case when o.payload_classification = 'safe_metadata'
                         and (getdatabaseencoding() = 'UTF8' or gov_handoff.gov_sent(o.safe_payload::text) is not null)
                    then o.safe_payload end, o.occurred_at
          from (select e.*
                  from unnest(case when p_domain is null then '{iu, piece, staging, birth_registry, governance, tac, kg, system, dot, health}'::text[]
                                   else array[p_domain] end) as d (domain)
                 cross join unnest(case when p_stream is null then '{comment, review, update, birth, task, alert, health}'::text[]
                                        else array[p_stream] end) as s (stream)
                 cross join lateral (
                       (select k.* from public.event_feed k
                         where p_type is null and k.event_domain = d.domain and (k.event_stream, k.pos) > (s.stream, coalesce(p_after, 0))
                           and k.event_stream <= s.stream
                         order by k.event_stream, k.pos limit v_limit)
                        union all
                       (select k.* from public.event_feed k
                         where k.event_domain = d.domain and k.event_stream = s.stream
                           and (k.event_type, k.pos) > (p_type, coalesce(p_after, 0)) and k.event_type <= p_type
                         order by k.event_type, k.pos limit v_limit)) e
                 order by e.pos limit v_limit) f
          left join public.event_outbox o on o.id = f.event_id
         order by f.pos;
end
$$;
comment on function public.fn_event_feed(bigint, int, text, text, text)
    is 'a lossless cursor: events above a position, in commit order; at or below a position that was returned nothing is ever added';

-- Privileges -------------------------------------------------------------------------------------------------------

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_feed_note(uuid[])', 'gov_handoff.gov_feed_lock()', 'gov_handoff.gov_feed_append(uuid[])',
        'gov_handoff.gov_feed_signals(uuid[],text[],text[],text[],text[],uuid[],uuid[],int[],text[])',
        'gov_handoff.gov_feed_take(text,text,bigint,int,boolean)',
        'gov_handoff.gov_feed_add(text,text,bigint,uuid[],boolean,boolean)', 'gov_handoff.gov_feed_retire(uuid[])',
        'public.fn_event_feed_head()', 'public.fn_event_feed(bigint,int,text,text,text)']::regprocedure[] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
-- LOCK TABLE in exclusive mode needs a privilege to write.
grant select, update on gov_handoff.feed to gov_handoff_owner;
grant select, insert, delete on public.event_feed, public.gov_feed_inbox to gov_handoff_owner;
grant select, update on public.gov_feed_state to gov_handoff_owner;
grant select on public.event_feed, public.gov_feed_inbox, public.gov_feed_state to gov_handoff_worker, gov_handoff_operator;
grant execute on function gov_handoff.gov_feed_take(text, text, bigint, int, boolean),
    gov_handoff.gov_feed_add(text, text, bigint, uuid[], boolean, boolean) to gov_handoff_worker;
grant execute on function public.fn_event_feed_head(), public.fn_event_feed(bigint, int, text, text, text)
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
