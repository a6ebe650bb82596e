-- The backlog of a source: the rows that exist when it is registered. The source's definition says what becomes of them:
-- `seed` (they become candidates, without a signal), `skip` (nothing) or `hand_off` (a signal each).
--
-- The boundary is a snapshot, not a time. One REPEATABLE READ snapshot at registration shows the backlog; every other
-- row, committed or not, is left to the intake. So a transaction that was open at that moment is handed off when it
-- commits. The set is exact: it lists the rows that were visible, and does not reason about transaction ids. (Savepoints
-- make `pg_visible_in_snapshot` wrong about rows.)
--
-- A row of the backlog is accounted for, as a retired signal is: no path records a signal for it. Only `replay` does,
-- and the row leaves the backlog in the commit that records its signals.

-- What was decided at the first registration of a source. The row stays when the source is removed, because its backlog
-- stays what it was.
create table public.gov_source_boundary (
    source_name       text        not null primary key,
    -- The set of rows in gov_backlog_range and gov_backlog_key that is in force.
    boundary          uuid        not null unique,
    policy            text        not null,
    -- How many rows the snapshot showed. Rows that a replay hands off leave the set, not this number.
    row_count         bigint      not null default 0,
    digest            text,
    snapshot          text,
    frontier          xid8,
    lsn               pg_lsn,
    system_identifier text,
    taken_at          timestamptz,
    -- What the set amounts to now: how many rows, and the sum that gov_backlog_stage describes. Only the gates that change
    -- the set change these two, in the same commit. So a row that was entered into the set past the gates shows.
    held              bigint      not null default 0,
    held_sum          numeric     not null default 0,
    decided_by        text        not null,
    decided_at        timestamptz not null default clock_timestamp(),
    constraint gov_source_boundary_policy_known check (policy = any ('{seed, skip, hand_off}')),
    constraint gov_source_boundary_rows_positive check (row_count >= 0)
);
comment on table public.gov_source_boundary is
    'what became of the rows that a source had when it was first registered, and the snapshot that says which rows these were';

-- The backlog of a source with integer keys, as ranges of ids. Ranges of one boundary are disjoint.
create table public.gov_backlog_range (
    boundary uuid        not null,
    lo       bigint      not null,
    hi       bigint      not null,
    -- The latest time that one of its rows bears. A row with one of these keys that bears a later time, and one after the
    -- snapshot, is another row.
    latest   timestamptz,
    primary key (boundary, lo),
    constraint gov_backlog_range_not_empty check (lo <= hi)
);
comment on table public.gov_backlog_range is 'the backlog of a source with integer keys: ids whose rows were there when it was registered';

-- The backlog of a source with other keys, row by row, by the subject reference of the key.
create table public.gov_backlog_key (
    boundary uuid not null,
    subject  uuid not null,
    primary key (boundary, subject)
);
comment on table public.gov_backlog_key is 'the backlog of a source with uuid or text keys: subject references of rows that were there when it was registered';

-- Boundaries that are being read. The rows are staged before the source is registered, so that the registration itself is
-- short, whatever the size of the table. What a session that is gone has staged is removed by the next one.
create table public.gov_backlog_staging (
    boundary      uuid        not null primary key,
    source_name   text        not null,
    -- The session that reads it, as in a lease: another session of the same role may bear the number later.
    session_pid   integer     not null,
    session_role  oid         not null,
    -- What was staged so far, as in gov_source_boundary.
    held          bigint      not null default 0,
    held_sum      numeric     not null default 0,
    begun_at      timestamptz not null default clock_timestamp()
);
comment on table public.gov_backlog_staging is 'boundaries that a session is reading and that are not in force';

-- A database that was set up before this step handed everything off.
insert into public.gov_source_boundary (source_name, boundary, policy, decided_by)
select t.source_name, gen_random_uuid(), 'hand_off', 'migrate'
  from public.gov_source_table t;

-- Reading a boundary ----------------------------------------------------------------------------------------------

-- Begins a boundary. Returns its identifier.
create function gov_handoff.gov_backlog_begin(p_source text)
returns uuid language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_boundary uuid := gen_random_uuid();
    v_gone uuid[];
begin
    perform pg_stat_clear_snapshot();
    with gone as (
        delete from public.gov_backlog_staging s
         where not exists (select from pg_stat_get_activity(s.session_pid) a where a.usesysid = s.session_role)
            or s.begun_at < clock_timestamp() - interval '1 day'
        returning s.boundary
    )
    select array_agg(boundary) into v_gone from gone;
    delete from public.gov_backlog_range r where r.boundary = any (v_gone);
    delete from public.gov_backlog_key k where k.boundary = any (v_gone);
    insert into public.gov_backlog_staging (boundary, source_name, session_pid, session_role)
    select v_boundary, p_source, pg_backend_pid(), a.usesysid from pg_stat_get_activity(pg_backend_pid()) a;
    return v_boundary;
end
$$;
comment on function gov_handoff.gov_backlog_begin(text) is 'begins to read the boundary of a source that is about to be registered';

-- Stages a part of a boundary: ranges of ids, or subjects. The lock on its row keeps it from being adopted or removed
-- meanwhile.
--
-- The sum of a set: every id twice, because lo..hi then add up to (lo + hi) * (hi - lo + 1); and the last 48 bits of every
-- subject, which are those of a hash.
create function gov_handoff.gov_backlog_stage(p_boundary uuid, p_lo bigint[], p_hi bigint[], p_latest timestamptz[],
                                         p_subject uuid[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from public.gov_backlog_staging s where s.boundary = p_boundary for update;
    if not found then
        raise exception 'boundary % is not being read', p_boundary using errcode = 'GH003',
            hint = 'register the source again';
    end if;
    with ranges as (
        insert into public.gov_backlog_range (boundary, lo, hi, latest)
        select p_boundary, u.lo, u.hi, u.latest from unnest(p_lo, p_hi, p_latest) as u (lo, hi, latest)
        returning lo::numeric, hi::numeric
    ), keys as (
        insert into public.gov_backlog_key (boundary, subject)
        select p_boundary, u.subject from unnest(p_subject) as u (subject)
        on conflict do nothing
        returning subject
    )
    update public.gov_backlog_staging s
       set held = s.held + t.n, held_sum = s.held_sum + t.total
      from (select coalesce(sum(x.n), 0) as n, coalesce(sum(x.total), 0) as total
              from (select r.hi - r.lo + 1, (r.lo + r.hi) * (r.hi - r.lo + 1) from ranges r
                     union all
                    select 1, ('x' || right(k.subject::text, 12))::bit(48)::bigint from keys k) x (n, total)) t
     where s.boundary = p_boundary;
end
$$;
comment on function gov_handoff.gov_backlog_stage(uuid, bigint[], bigint[], timestamptz[], uuid[]) is 'stages a part of a boundary that is being read';

-- Removes what was staged for a boundary that is not adopted. Removes nothing that is in force.
create function gov_handoff.gov_backlog_forget(p_boundary uuid)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from public.gov_backlog_staging s where s.boundary = p_boundary;
    if found then
        delete from public.gov_backlog_range r where r.boundary = p_boundary;
        delete from public.gov_backlog_key k where k.boundary = p_boundary;
    end if;
end
$$;
comment on function gov_handoff.gov_backlog_forget(uuid) is 'removes what was staged for a boundary that did not come into force';

-- Decides what becomes of the backlog of a source that is registered now, for the first time; otherwise what was decided
-- then holds. The caller (gov_source_put) holds the locks `batches` and `definitions`.
--
-- The order is right: a row that commits after the snapshot and before this commit is not in the set, so it is in an open
-- range, or was written at or above the snapshot's xmin, where the frontier starts.
create function gov_handoff.gov_source_bound(p_worker text, p_source text, p_boundary jsonb)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_boundary uuid := (p_boundary ->> 'boundary')::uuid;
    v_policy text := coalesce(p_boundary ->> 'policy', 'hand_off');
    v_held bigint;
    v_sum numeric;
begin
    -- A source that recorded something before there were boundaries handed off what it had.
    if exists (select from public.gov_source_table t where t.source_name = p_source and t.used) then
        v_policy := 'hand_off';
    end if;
    if v_policy <> 'hand_off' and v_boundary is null then
        raise exception 'expected the boundary of source %, found none', p_source using errcode = 'GH003';
    end if;
    insert into public.gov_source_boundary (source_name, boundary, policy, row_count, digest, snapshot, frontier, lsn,
        system_identifier, taken_at, decided_by)
    values (p_source, coalesce(v_boundary, gen_random_uuid()), v_policy, coalesce((p_boundary ->> 'rows')::bigint, 0),
        p_boundary ->> 'digest', p_boundary ->> 'snapshot', (p_boundary ->> 'frontier')::xid8, (p_boundary ->> 'lsn')::pg_lsn,
        p_boundary ->> 'system_identifier', (p_boundary ->> 'taken_at')::timestamptz,
        coalesce(p_boundary ->> 'actor', session_user::text))
    on conflict (source_name) do nothing;
    if not found or v_policy = 'hand_off' then
        return;
    end if;
    delete from public.gov_backlog_staging s where s.boundary = v_boundary and s.source_name = p_source
    returning s.held, s.held_sum into v_held, v_sum;
    if not found then
        raise exception 'the boundary of source % is not there: another session removed what was read', p_source
            using errcode = 'GH003', hint = 'register the source again';
    end if;
    update public.gov_source_boundary b set held = v_held, held_sum = v_sum where b.source_name = p_source;
    insert into public.gov_worker_frontier (worker_name, source_name, frontier, system_identifier, certified_lsn, relation, filenode)
    values (p_worker, p_source, (p_boundary ->> 'frontier')::xid8, p_boundary ->> 'system_identifier',
        (p_boundary ->> 'lsn')::pg_lsn, (p_boundary ->> 'relation')::oid, (p_boundary ->> 'filenode')::oid)
    on conflict (worker_name, source_name) do nothing;
end
$$;
comment on function gov_handoff.gov_source_bound(text, text, jsonb) is 'decides what becomes of the backlog of a source, once';

-- Asking and releasing --------------------------------------------------------------------------------------------

-- Whether a row is in the backlog of its source. The gates that apply a batch contain the same probes themselves, which
-- is cheaper.
create function gov_handoff.gov_backlog_holds(p_source text, p_number bigint, p_subject uuid)
returns boolean language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from public.gov_source_boundary b
         where b.source_name = p_source and b.policy <> 'hand_off' and b.row_count > 0
           and (coalesce((select r.hi >= p_number from public.gov_backlog_range r
                           where r.boundary = b.boundary and r.lo <= p_number order by r.lo desc limit 1), false)
                or exists (select from public.gov_backlog_key k where k.boundary = b.boundary and k.subject = p_subject)))
$$;
comment on function gov_handoff.gov_backlog_holds(text, bigint, uuid) is 'whether a row is in the backlog of its source';

-- Takes rows out of the backlog, because the caller hands them off in this transaction.
create function gov_handoff.gov_backlog_release(p_source text, p_number bigint[], p_subject uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_boundary uuid;
    v_lo bigint[];
    v_hi bigint[];
    v_latest timestamptz[];
    v_n bigint;
    v_sum numeric;
begin
    -- The lock orders two callers that take rows out of the same range.
    select b.boundary into v_boundary from public.gov_source_boundary b
     where b.source_name = p_source and b.policy <> 'hand_off' and b.row_count > 0 for update;
    if v_boundary is null then
        return;
    end if;
    with gone as (
        delete from public.gov_backlog_key k where k.boundary = v_boundary and k.subject = any (p_subject) returning k.subject
    )
    select count(*), coalesce(sum(('x' || right(g.subject::text, 12))::bit(48)::bigint), 0) into v_n, v_sum from gone g;
    with gone as (
        delete from public.gov_backlog_range g
         using (select distinct r.lo
                  from unnest(p_number) as u (number)
                 cross join lateral (select x.lo, x.hi from public.gov_backlog_range x
                                      where x.boundary = v_boundary and x.lo <= u.number order by x.lo desc limit 1) r
                 where r.hi >= u.number) t
         where g.boundary = v_boundary and g.lo = t.lo
        returning g.lo, g.hi, g.latest
    )
    select array_agg(lo), array_agg(hi), array_agg(latest) into v_lo, v_hi, v_latest from gone;
    -- What is left of each range: the stretches between the numbers, and behind the last of them. Numeric, because the
    -- limits of the type have no neighbour.
    insert into public.gov_backlog_range (boundary, lo, hi, latest)
    select v_boundary, p.lo::bigint, p.hi::bigint, p.latest
      from (select coalesce(lag(n.number::numeric) over (partition by r.lo order by n.number) + 1, r.lo) as lo,
                   n.number::numeric - 1 as hi, r.latest
              from unnest(v_lo, v_hi, v_latest) as r (lo, hi, latest)
              join (select distinct u.number from unnest(p_number) as u (number)) n on n.number between r.lo and r.hi
             union all
            select max(n.number)::numeric + 1, r.hi, r.latest
              from unnest(v_lo, v_hi, v_latest) as r (lo, hi, latest)
              join unnest(p_number) as n (number) on n.number between r.lo and r.hi
             group by r.lo, r.hi, r.latest) p
     where p.lo <= p.hi;
    -- What left the set, in this commit: see gov_backlog_stage.
    select v_n + count(*), v_sum + coalesce(sum(2 * n.number::numeric), 0) into v_n, v_sum
      from (select distinct u.number from unnest(p_number) as u (number)) n
     where exists (select from unnest(v_lo, v_hi) as r (lo, hi) where n.number between r.lo and r.hi);
    update public.gov_source_boundary b set held = b.held - v_n, held_sum = b.held_sum - v_sum
     where b.boundary = v_boundary and v_n > 0;
end
$$;
comment on function gov_handoff.gov_backlog_release(text, bigint[], uuid[]) is 'takes rows out of the backlog in the commit that hands them off';

-- For a row that cannot be handed off. True: the row is in the backlog and no path has to hand it off, so there is nothing
-- to stage and no letter to write. A replay hands rows of the backlog off: then the row leaves the backlog, and is staged
-- or becomes a letter like any other.
create function gov_handoff.gov_backlog_yield(p_worker text, p_source text, p_key text, p_subject uuid)
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_number bigint;
begin
    -- In steps: a planner that knows the key computes a cast of it at once, whatever the conditions beside it say.
    if p_key ~ '^-?[0-9]{1,19}$'
       and exists (select from public.gov_source_table t where t.source_name = p_source and t.id_family = 'integer') then
        if p_key::numeric between -9223372036854775808 and 9223372036854775807 then
            v_number := p_key;
        end if;
    end if;
    if not gov_handoff.gov_backlog_holds(p_source, v_number, p_subject) then
        return false;
    end if;
    if p_worker not in ('gov_handoff_replay', 'gov_handoff_dlq') then
        return true;
    end if;
    perform gov_handoff.gov_backlog_release(p_source, array[v_number], array[p_subject]);
    return false;
end
$$;
comment on function gov_handoff.gov_backlog_yield(text, text, text, uuid) is 'whether a row that cannot be handed off is in the backlog, and so needs no letter';

-- The sweep --------------------------------------------------------------------------------------------------------

-- One page of gov_backfill_sweep: marks, place, checkpoint and fence, in one commit. There is no signal, no ruleset is
-- raised and no scope is invalidated. o_* are the handoffs that mark an object, as the intake would have mapped them.
--
-- p_missing: only objects without a candidate are marked; the phase `reconciling` reads the backlog again in full.
-- Returns how many objects had no candidate before this page.
create function gov_handoff.gov_backfill_page(
    p_worker text, p_owner text, p_term bigint, p_source text, p_boundary uuid, p_phase text, p_place jsonb, p_missing boolean,
    p_rows bigint, p_refused bigint, p_begins boolean, p_ends boolean, p_certificate jsonb, d_version uuid,
    o_key text[], o_kind text[], o_type text[], o_address text[], o_group text[], o_dims jsonb[], o_occurred timestamptz[])
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- As in a session that applies batches: a page goes by keys, and its plans are kept while the tables grow.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_created bigint;
    v_lost text[];
    v_place jsonb;
begin
    -- Shared until the commit, as in a batch: the definition and the boundary stay in force.
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(array[d_version]);
    if not exists (select from public.gov_source_boundary b where b.source_name = p_source and b.boundary = p_boundary) then
        raise exception 'the boundary of source % is no longer in force', p_source using errcode = 'GH004';
    end if;
    select coalesce(array_agg(o.address), '{}') into v_lost
      from (select distinct u.address from unnest(o_address) as u (address)) o
     where not exists (select from public.gov_candidate_state c where c.candidate_key = o.address);
    v_created := cardinality(v_lost);
    if p_missing and v_created > 0 then
        select array_agg(u.key), array_agg(u.kind), array_agg(u.type), array_agg(u.address), array_agg(u.grp), array_agg(u.dims),
               array_agg(u.occurred)
          into o_key, o_kind, o_type, o_address, o_group, o_dims, o_occurred
          from unnest(o_key, o_kind, o_type, o_address, o_group, o_dims, o_occurred)
               as u (key, kind, type, address, grp, dims, occurred)
         where u.address = any (v_lost);
    end if;
    if v_created > 0 or not p_missing and cardinality(o_key) > 0 then
        perform gov_handoff.gov_candidate_seed(
            p_source => p_source, o_key => o_key, o_kind => o_kind, o_type => o_type, o_address => o_address,
            o_group => o_group, o_dims => o_dims, o_occurred => o_occurred);
    end if;
    v_place := p_place || jsonb_build_object(
        'candidates', coalesce((p_place ->> 'candidates')::bigint, 0) + case when p_missing then 0 else v_created end,
        'repaired', coalesce((p_place ->> 'repaired')::bigint, 0) + case when p_missing then v_created else 0 end);
    -- The lease first, as everywhere: its row stays locked until the commit, so a takeover waits for all of this.
    perform gov_handoff.gov_worker_page(
        p_worker => p_worker, p_owner => p_owner, p_term => p_term, p_source => p_source, p_rows => p_rows,
        p_marked => v_created, p_dlq => p_refused, p_begins => p_begins, p_ends => p_ends);
    -- The place is in the summary: a watermark may only move forward, and a second reading begins at the first key again.
    v_place := jsonb_build_object('sweep', v_place);
    if p_certificate is not null then
        v_place := v_place || jsonb_build_object('certificate', p_certificate || jsonb_build_object('taken_at', clock_timestamp()));
        insert into public.gov_certificate_log (source_name, taken_at, worker_name, certificate)
        values (p_source, (v_place #>> '{certificate,taken_at}')::timestamptz, p_worker, v_place -> 'certificate')
        on conflict do nothing;
    end if;
    update public.gov_worker_cursor c
       set phase = p_phase, last_run_summary = c.last_run_summary || v_place
     where c.worker_name = p_worker and c.source_name = p_source;
    return v_created;
end
$$;
comment on function gov_handoff.gov_backfill_page(text, text, bigint, text, uuid, text, jsonb, boolean, bigint, bigint, boolean,
    boolean, jsonb, uuid, text[], text[], text[], text[], text[], jsonb[], timestamptz[]) is 'one page of gov_backfill_sweep: marks, place, checkpoint and fence in one commit';

-- What became of each source's backlog, for people. Bounded: one row for each source.
create view public.v_gov_backlog as
select b.source_name, b.policy, b.row_count, b.taken_at, b.snapshot, b.lsn, b.digest, b.decided_by, b.decided_at,
       case when b.policy = 'seed' and b.row_count > 0 then coalesce(c.phase, 'seeding') end as phase,
       (c.last_run_summary #>> '{sweep,rows}')::bigint as rows_read,
       (c.last_run_summary #>> '{sweep,candidates}')::bigint as candidates
  from public.gov_source_boundary b
  left join public.gov_worker_cursor c on c.worker_name = 'gov_backfill_sweep' and c.source_name = b.source_name;
comment on view public.v_gov_backlog is 'what became of the rows that each source had when it was registered';

do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname ~ '^gov_(backlog|backfill)_|^gov_source_bound$'
    loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace
           and p.proname in ('gov_backlog_begin', 'gov_backlog_stage', 'gov_backlog_forget')
    loop
        execute format('grant execute on function %s to gov_handoff_operator', f);
    end loop;
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname = 'gov_backfill_page'
    loop
        execute format('grant execute on function %s to gov_handoff_worker', f);
    end loop;
end
$$;
grant select, insert, update, delete on public.gov_source_boundary, public.gov_backlog_range, public.gov_backlog_key,
    public.gov_backlog_staging to gov_handoff_owner;
grant select on public.gov_source_boundary, public.gov_backlog_range, public.gov_backlog_key to gov_handoff_worker, gov_handoff_operator;
grant select on public.v_gov_backlog to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;

-- The finding of this step is an event type as well, inactive like the others.
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.finding.backlog_not_seeded', 'alert', false
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.finding.backlog_not_seeded');
