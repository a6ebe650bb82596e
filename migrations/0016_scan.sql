-- The candidate scan: verdict rules, the gate that records a page of verdicts, and the expansion of invalidations.

-- Verdict rules are data. Of the enabled rules of a grain, in the order (priority, code), the first whose tests all pass
-- gives the verdict. A rule that names a measurement holds only while measurement_registry has it enabled. Built-in rules
-- stay when a rule file does not name them.
create table public.gov_verdict_rule (
    code        text        not null primary key,
    grain       text        not null,
    priority    integer     not null default 100,
    tests       jsonb       not null default '[]',
    verdict     text        not null,
    severity    text,
    measurement text,
    enabled     boolean     not null default true,
    built_in    boolean     not null default false,
    changed_by  text        not null,
    changed_at  timestamptz not null default clock_timestamp(),
    constraint gov_verdict_rule_grain_known check (grain = any ('{group, object}')),
    constraint gov_verdict_rule_severity_known check (severity = any ('{info, warning, critical}')),
    constraint gov_verdict_rule_tests_are_a_list check (jsonb_typeof(tests) = 'array'),
    constraint gov_verdict_rule_words check (code ~ '^[a-z][a-z0-9_]{0,62}$' and verdict ~ '^[a-z][a-z0-9_]{0,62}$')
);
comment on table public.gov_verdict_rule is 'verdict rules: tests over facts of groups or objects, and the verdict of the first rule that passes';

insert into public.gov_verdict_rule (code, grain, priority, tests, verdict, built_in, changed_by)
values ('several_accepted', 'group', 1000, '[{"fact": "accepted", "at_least": 2}]', 'candidate', true, 'gov-handoff'),
       ('one_accepted', 'group', 1001, '[{"fact": "accepted", "at_least": 1}]', 'single', true, 'gov-handoff'),
       ('none_accepted', 'group', 1002, '[]', 'empty', true, 'gov-handoff'),
       ('object_retired', 'object', 1000, '[{"fact": "retired", "at_least": 1}]', 'retired', true, 'gov-handoff'),
       ('object_accepted', 'object', 1001, '[{"fact": "input", "equals": "ok"}]', 'accepted', true, 'gov-handoff'),
       ('object_rejected', 'object', 1002, '[{"fact": "input", "equals": "rejected"}]', 'rejected', true, 'gov-handoff');

-- How many scans share the groups, and for how long a verdict counts. One row. The gates read it in shared mode until
-- their commit, so no page of an old division commits after a new one is in force.
create table public.gov_scan_control (
    one       boolean  not null primary key default true,
    shards    integer  not null default 1,
    stale_ms  bigint   not null default 604800000,
    constraint gov_scan_control_one_row check (one),
    constraint gov_scan_control_shards check (shards between 1 and 64)
);
comment on table public.gov_scan_control is 'one row: how many scans share the groups, and after how long a verdict is stale';
insert into public.gov_scan_control default values;

-- An object that moved to another group. The scan of its new group notes the departure; the scan of the group that it left
-- takes the object out of its counts. So each group is counted by its own scan alone.
create table public.gov_candidate_departure (
    id         bigint generated always as identity primary key,
    group_key  text   not null,
    counted_as text   not null
);
comment on table public.gov_candidate_departure is 'objects that left a group and are still in its counts';
create index gov_candidate_departure_group on public.gov_candidate_departure (group_key);

-- How many groups and objects have which verdict, by the scan that judged them: a scan has rows of its own, so that scans do
-- not wait for each other. One scan may count below zero what another one counted; the sum is exact.
create table public.gov_verdict_tally (
    worker_name text   not null,
    grain       text   not null,
    verdict     text   not null,
    n           bigint not null,
    primary key (worker_name, grain, verdict)
);
comment on table public.gov_verdict_tally is 'how many groups and objects have which verdict, in parts by worker';

create index gov_candidate_group_stale on public.gov_candidate_group (stale_after);

insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.candidate.verdict_changed', 'update', false
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.candidate.verdict_changed');

-- Which of n scans has a group, from 1 on.
create function gov_handoff.gov_scan_shard(p_group text, p_shards int)
returns int language sql immutable parallel safe
return (hashtextextended(p_group, 0) & 9223372036854775807) % p_shards + 1;

-- Divides the groups among this many scans, and says how long a verdict counts. The holder of the first scan's lease
-- decides; the fence is last, as always.
create function gov_handoff.gov_scan_divide(p_worker text, p_owner text, p_term bigint, p_shards int, p_stale_ms bigint)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_worker <> 'gov_candidate_scan' then
        raise exception 'only gov_candidate_scan divides the groups, not %', p_worker using errcode = '42501';
    end if;
    update public.gov_scan_control set shards = p_shards, stale_ms = p_stale_ms
     where shards <> p_shards or stale_ms <> p_stale_ms;
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
end
$$;

-- One page of verdicts: objects first, then their groups, the events of verdicts that changed, and the checkpoint.
--
-- g_*: the groups of the page. generation is the one that was read; from_* is how far the scan had come then, to_* how far
-- it comes with this page; done says that the page reaches the end of the group. g_departed are the departures that the
-- client read, by group. o_*: the objects; was_* is how the scan had counted the object.
--
-- An object that was marked since the page was read keeps its old verdict, and is judged again: its mark lies behind the
-- place of the scan. An object that another transaction has locked holds its group back, and the page of this group is
-- read again. `dirty` is cleared only where the generation is the one that was read.
create function gov_handoff.gov_scan_put(
    p_worker text, p_owner text, p_term bigint, p_shard int, p_shards int, p_version int,
    g_key text[], g_generation bigint[], g_from_version int[], g_from_mark bigint[], g_from_key text[], g_to_version int[],
    g_to_mark bigint[], g_to_key text[], g_done boolean[], g_verdict text[], g_rule text[], g_severity text[],
    d_id bigint[],
    o_key text[], o_group text[], o_generation bigint[], o_was_group text[], o_was text[], o_counted text[],
    o_verdict text[], o_rule text[], o_severity text[],
    p_rows bigint, p_begins boolean, p_ends boolean)
returns table (judged bigint, cleared bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_stale interval;
    v_held text[];
    v_delta jsonb;
    v_moved text[];
    v_objects jsonb;
    v_groups jsonb;
begin
    -- Shared until the commit: see gov_scan_control.
    select c.stale_ms * interval '1 millisecond' into v_stale
      from public.gov_scan_control c where c.shards = p_shards for share;
    if not found or exists (select from unnest(g_key) as u (key) where gov_handoff.gov_scan_shard(u.key, p_shards) <> p_shard) then
        raise exception 'the groups are divided otherwise now' using errcode = 'GH002';
    end if;

    -- Groups before objects, each by key: the order in which marks take them.
    perform from public.gov_candidate_group g where g.group_key = any (g_key) order by g.group_key collate "C" for no key update;
    -- EXECUTE, here and below: each page is planned for its own size.
    execute $q$
        with locked as materialized (
            select c.candidate_key from public.gov_candidate_state c where c.candidate_key = any ($1)
             order by c.candidate_key collate "C" for no key update skip locked
        )
        select coalesce(array_agg(distinct x.key), '{}')
          from (select u.grp as key from unnest($1, $2) as u (key, grp)
                 where not exists (select from locked l where l.candidate_key = u.key)
                union all
                -- Another scan has moved this group on. Only a new division of the groups makes that possible.
                select u.key from unnest($3, $4, $5, $6) as u (key, version, mark, place)
                  join public.gov_candidate_group g on g.group_key = u.key
                 where g.scan_version is distinct from u.version or g.scan_mark <> u.mark or g.scan_key <> u.place) x
    $q$ into v_held using o_key, o_group, g_key, g_from_version, g_from_mark, g_from_key;

    execute $q$
        with judged as (
            update public.gov_candidate_state c
               set candidate_verdict = u.verdict, verdict_rule = u.rule, severity = u.severity, ruleset_version = $1,
                   dirty = false, scanned_group = c.group_key, counted_as = u.counted, scanned_at = clock_timestamp(),
                   stale_after = clock_timestamp() + $2, group_mark = least(c.group_mark, ($12 ->> u.grp)::bigint)
              from unnest($3, $4, $5, $6, $7, $8, $9, $10, $11)
                   as u (key, grp, generation, was_group, was, counted, verdict, rule, severity)
              join public.gov_candidate_state o on o.candidate_key = u.key
             where c.candidate_key = u.key and u.grp <> all ($13) and c.group_key = u.grp and c.generation = u.generation
               and c.scanned_group is not distinct from u.was_group and c.counted_as is not distinct from u.was
            returning u.key, u.grp, u.was_group, u.was, u.counted, o.candidate_verdict as old_verdict, u.verdict, u.rule,
                      u.severity, u.generation
        ), left_behind as (
            insert into public.gov_candidate_departure (group_key, counted_as)
            select j.was_group, j.was from judged j where j.was_group <> j.grp
            returning group_key
        ), delta as (
            select x.grp, jsonb_object_agg(x.class, x.n) as classes
              from (select e.grp, e.class, sum(e.n) as n
                      from (select j.grp, j.counted as class, 1 as n from judged j
                            union all
                            select j.grp, j.was, -1 from judged j where j.was_group = j.grp) e
                     group by e.grp, e.class) x
             group by x.grp
        ), tallied as (
            select v.verdict, sum(v.n) as n
              from (select j.verdict, 1 as n from judged j where j.verdict is distinct from j.old_verdict
                    union all
                    select j.old_verdict, -1 from judged j where j.verdict is distinct from j.old_verdict) v
             where v.verdict is not null group by v.verdict
        ), tally as (
            insert into public.gov_verdict_tally as t (worker_name, grain, verdict, n)
            select $14, 'object', t.verdict, t.n from tallied t order by t.verdict collate "C"
            on conflict (worker_name, grain, verdict) do update set n = t.n + excluded.n
        )
        -- The first verdict of an object is not a change: a backlog that is seeded announces nothing.
        select (select count(*) from judged), (select jsonb_object_agg(d.grp, d.classes) from delta d),
               (select array_agg(distinct l.group_key) from left_behind l),
               (select jsonb_agg(jsonb_build_object('grain', 'object', 'key', j.key, 'generation', j.generation, 'was', j.old_verdict,
                                                    'verdict', j.verdict, 'rule', j.rule, 'severity', j.severity))
                  from judged j where j.old_verdict is not null and j.verdict is distinct from j.old_verdict)
    $q$ into judged, v_delta, v_moved, v_objects
      using p_version, v_stale, o_key, o_group, o_generation, o_was_group, o_was, o_counted, o_verdict, o_rule, o_severity,
            jsonb_object(g_key, g_generation::text[]), v_held, p_worker;

    execute $q$
        with departed as (
            delete from public.gov_candidate_departure d
             where d.id = any ($1) and d.group_key <> all ($2) returning d.group_key, d.counted_as
        ), departures as (
            select d.group_key, d.counted_as as class, count(*) as n from departed d group by d.group_key, d.counted_as
        ), deltas as (
            select u.key,
                   coalesce((select sum(x.value::bigint) from jsonb_each_text($3 -> u.key) x), 0)
                       - coalesce((select sum(d.n) from departures d where d.group_key = u.key), 0) as members,
                   coalesce(($3 -> u.key ->> 'accepted')::bigint, 0)
                       - coalesce((select d.n from departures d where d.group_key = u.key and d.class = 'accepted'), 0) as accepted,
                   coalesce(($3 -> u.key ->> 'rejected')::bigint, 0)
                       - coalesce((select d.n from departures d where d.group_key = u.key and d.class = 'rejected'), 0) as rejected,
                   coalesce(($3 -> u.key ->> 'retired')::bigint, 0)
                       - coalesce((select d.n from departures d where d.group_key = u.key and d.class = 'retired'), 0) as retired,
                   u.generation, u.to_version, u.to_mark, u.to_key, u.done and u.key <> all ($2) as done, u.key <> all ($2) as moves,
                   u.verdict, u.rule, u.severity
              from unnest($4, $5, $6, $7, $8, $9, $10, $11, $12)
                   as u (key, generation, to_version, to_mark, to_key, done, verdict, rule, severity)
        ), scanned as (
            update public.gov_candidate_group g
               set members = g.members + d.members, accepted = g.accepted + d.accepted, rejected = g.rejected + d.rejected,
                   retired = g.retired + d.retired,
                   scan_version = case when d.moves then d.to_version else g.scan_version end,
                   scan_mark = case when d.moves then d.to_mark else g.scan_mark end,
                   scan_key = case when d.moves then d.to_key else g.scan_key end,
                   verdict = case when d.done then d.verdict else g.verdict end,
                   verdict_rule = case when d.done then d.rule else g.verdict_rule end,
                   severity = case when d.done then d.severity else g.severity end,
                   scanned_version = case when d.done then d.to_version else g.scanned_version end,
                   scanned_at = case when d.done then clock_timestamp() else g.scanned_at end,
                   stale_after = case when d.done then clock_timestamp() + $13 else g.stale_after end,
                   dirty = g.dirty and not (d.done and g.generation = d.generation and d.to_version = $14)
              from deltas d, public.gov_candidate_group o
             where g.group_key = d.key and o.group_key = d.key
            returning g.group_key, g.generation, d.done, o.verdict as old_verdict, g.verdict, g.verdict_rule, g.severity, g.dirty
        ), tallied as (
            select v.verdict, sum(v.n) as n
              from (select s.verdict, 1 as n from scanned s where s.verdict is distinct from s.old_verdict
                    union all
                    select s.old_verdict, -1 from scanned s where s.verdict is distinct from s.old_verdict) v
             where v.verdict is not null group by v.verdict
        ), tally as (
            insert into public.gov_verdict_tally as t (worker_name, grain, verdict, n)
            select $15, 'group', t.verdict, t.n from tallied t order by t.verdict collate "C"
            on conflict (worker_name, grain, verdict) do update set n = t.n + excluded.n
        )
        select (select count(*) from scanned s where not s.dirty),
               (select jsonb_agg(jsonb_build_object('grain', 'group', 'key', s.group_key, 'generation', s.generation, 'was', s.old_verdict,
                                                    'verdict', s.verdict, 'rule', s.verdict_rule, 'severity', s.severity))
                  from scanned s where s.verdict is distinct from s.old_verdict)
    $q$ into cleared, v_groups
      using d_id, v_held, coalesce(v_delta, '{}'), g_key, g_generation, g_to_version, g_to_mark, g_to_key, g_done, g_verdict,
            g_rule, g_severity, v_stale, p_version, p_worker;
    if v_objects is not null or v_groups is not null then
        perform gov_handoff.gov_verdict_emit(coalesce(v_objects, '[]') || coalesce(v_groups, '[]'), p_version);
    end if;

    -- The groups that were left are dirty again. A mark is anybody's to make; their counts stay their own scan's.
    if v_moved is not null then
        perform gov_handoff.gov_groups_touch(v_moved, 'member_left');
    end if;
    perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, 'candidates', p_rows, judged, 0, p_begins, p_ends);
    return next;
end
$$;

-- Announces verdicts that changed. The identity of such an event is that of the group or object at this generation under
-- this version, so that one change is one event. While the type is inactive the events are captured, like every other. If a
-- live outbox refuses them, they are captured as well: an announcement must not stop the scan.
create function gov_handoff.gov_verdict_emit(p_changes jsonb, p_version int)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_type constant text := 'governance.candidate.verdict_changed';
    v_refusal text;
    v_captured bigint;
    v_out uuid[];
begin
    begin
        with recorded as (
            insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system, payload_classification, safe_payload)
            select e.id, 'governance', v_type, t.event_stream, coalesce(e.severity, 'info'), 'immediate', e.entity_table, e.id,
                   e.address, 'gov_candidate_scan', 'gov-handoff', 'safe_metadata', e.payload
              from gov_handoff.gov_verdict_events(p_changes, p_version) e
              join public.event_type_registry t on t.event_domain = 'governance' and t.event_type = v_type and t.active
            on conflict do nothing
            returning id
        )
        select array_agg(id) into v_out from recorded;
        if v_out is not null then
            perform gov_handoff.gov_feed_note(v_out);
        end if;
    exception when others then
        v_refusal := 'refused by the database (' || sqlstate || ')';
    end;
    insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
        capture_payload, last_error)
    select e.id, 'governance', v_type, e.entity_table, e.id, e.address, 'gov_candidate_scan',
           e.payload || jsonb_build_object('source_system', 'gov-handoff', 'occurred_at', clock_timestamp(),
                                           'event_stream', 'update', 'event_severity', coalesce(e.severity, 'info')),
           v_refusal
      from gov_handoff.gov_verdict_events(p_changes, p_version) e
     where not exists (select from public.event_outbox o where o.id = e.id)
    on conflict (id) do nothing;
    get diagnostics v_captured = row_count;
    if v_captured > 0 then
        perform gov_handoff.gov_finding_raise('handoff_unregistered_type', 'handoff_unregistered_type:' || v_type, 'info',
            jsonb_build_object('event_type', v_type, 'source', 'gov_candidate_scan'), true);
    end if;
end
$$;

create function gov_handoff.gov_verdict_events(p_changes jsonb, p_version int)
returns table (id uuid, entity_table text, address text, severity text, payload jsonb) language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select gov_handoff.gov_handoff_identity(t.name, 'text', c.key, c.generation || ':' || p_version || ':' || coalesce(c.verdict, '')),
           t.name, c.grain || ':' || c.key, c.severity,
           jsonb_build_object('grain', c.grain, 'verdict', c.verdict, 'was', c.was, 'rule', c.rule, 'generation', c.generation,
                              'ruleset_version', p_version)
      from jsonb_to_recordset(p_changes)
           as c (grain text, key text, generation bigint, was text, verdict text, rule text, severity text)
     cross join lateral (select case c.grain when 'group' then 'gov_candidate_group' else 'gov_candidate_state' end as name) t
$$;

-- Marks up to p_limit groups that are past their time: their members are judged again, from the first one on.
create function gov_handoff.gov_scan_stale(p_worker text, p_owner text, p_term bigint, p_limit int, p_shard int, p_shards int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_marked bigint;
begin
    with due as (
        select g.group_key from public.gov_candidate_group g
         -- Not clock_timestamp(): it changes from row to row, and no index is searched for it.
         where g.stale_after < now() and gov_handoff.gov_scan_shard(g.group_key, p_shards) = p_shard
         order by g.stale_after limit p_limit
    ), locked as (
        select g.group_key from public.gov_candidate_group g where g.group_key in (select d.group_key from due d)
         order by g.group_key collate "C" for no key update
    )
    update public.gov_candidate_group g
       set dirty = true, dirty_reason = 'stale', dirtied_at = now(), generation = g.generation + 1, stale_after = null,
           scan_version = null, scan_mark = 0, scan_key = ''
      from locked l where g.group_key = l.group_key;
    get diagnostics v_marked = row_count;
    if v_marked > 0 then
        perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, 'candidates', 0, v_marked, 0, true, false);
    end if;
    return v_marked;
end
$$;

-- Marks the next groups that the oldest open invalidation concerns: up to p_limit groups by key, behind those it has
-- reached. Each group is scanned from its first member on. Returns null if none is open.
--
-- An invalidation that has not begun, of groups that a later open one concerns as well, is left to the later one. One that
-- has begun goes on to its end, so that invalidations which follow each other quickly cannot keep the last groups waiting.
create function gov_handoff.gov_invalidation_expand(p_worker text, p_owner text, p_term bigint, p_limit int)
returns table (id bigint, marked bigint, total bigint, seen bigint, done boolean) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_open record;
    v_read bigint;
    -- Not `marked`: in the UPDATE below that name means the column.
    v_marked bigint := 0;
    v_last text;
begin
    select * into v_open from public.gov_invalidation i where i.done_at is null order by i.id limit 1 for no key update;
    if not found then
        return;
    end if;
    if v_open.started_at is null then
        select max(i.id) into v_open.done_by from public.gov_invalidation i
         where i.done_at is null and i.id > v_open.id and v_open.scope @> i.scope;
    end if;
    if v_open.done_by is null then
        execute $q$
            with page as (
                select g.group_key, g.dims @> $3 as concerned from public.gov_candidate_group g
                 where g.group_key > $1 order by g.group_key limit $2
            ), locked as (
                select g.group_key from public.gov_candidate_group g
                 where g.group_key in (select p.group_key from page p where p.concerned)
                 order by g.group_key collate "C" for no key update
            ), touched as (
                update public.gov_candidate_group g
                   set dirty = true, dirty_reason = $4, dirtied_at = now(), generation = g.generation + 1,
                       scan_version = null, scan_mark = 0, scan_key = ''
                  from locked l where g.group_key = l.group_key
                returning 1
            )
            select count(*), max(p.group_key), (select count(*) from touched) from page p
        $q$ into v_read, v_last, v_marked using coalesce(v_open.expanded_to, ''), p_limit, v_open.scope, v_open.kind;
    end if;
    id := v_open.id;
    marked := v_marked;
    total := v_open.marked + v_marked;
    seen := v_open.seen + coalesce(v_read, 0);
    done := v_open.done_by is not null or v_read < p_limit;
    update public.gov_invalidation i
       set started_at = case when v_open.done_by is null then coalesce(i.started_at, clock_timestamp()) end,
           expanded_to = coalesce(v_last, i.expanded_to), marked = v_open.marked + v_marked,
           seen = v_open.seen + coalesce(v_read, 0),
           done_at = case when done then clock_timestamp() end, done_by = v_open.done_by
     where i.id = v_open.id;
    -- The latest thousand are kept for people.
    if done then
        delete from public.gov_invalidation i where i.done_at is not null and i.id < v_open.id - 1000;
    end if;
    perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, 'invalidations', coalesce(v_read, 0), v_marked, 0, v_open.started_at is null, done);
    return next;
end
$$;

-- The rule set, as one list; a rule that it does not name is removed, unless it is built in. Returns the ruleset version that
-- is in force then. If anything changed, this is a new version, and every group is scanned again.
create function gov_handoff.gov_rules_put(p_rules jsonb, p_actor text)
returns table (version int, changed boolean) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_actor text := coalesce(nullif(btrim(p_actor), ''), session_user);
    v_before text;
begin
    -- No batch notes an invalidation meanwhile, and no other list is put.
    perform gov_handoff.gov_batches_alone();
    select md5(string_agg(concat_ws('|', r.code, r.grain, r.priority, r.tests, r.verdict, r.severity, r.measurement, r.enabled), E'\n'
               order by r.code)) into v_before from public.gov_verdict_rule r;
    delete from public.gov_verdict_rule r
     where not r.built_in and r.code not in (select u ->> 'code' from jsonb_array_elements(p_rules) as u);
    insert into public.gov_verdict_rule as r (code, grain, priority, tests, verdict, severity, measurement, enabled, changed_by)
    select u ->> 'code', u ->> 'grain', (u ->> 'priority')::int, u -> 'tests', u ->> 'verdict', u ->> 'severity', u ->> 'measurement',
           (u ->> 'enabled')::boolean, v_actor
      from jsonb_array_elements(p_rules) as u
    on conflict (code) do update
        set grain = excluded.grain, priority = excluded.priority, tests = excluded.tests, verdict = excluded.verdict,
            severity = excluded.severity, measurement = excluded.measurement, enabled = excluded.enabled,
            changed_by = excluded.changed_by, changed_at = clock_timestamp()
        where (r.grain, r.priority, r.tests, r.verdict, r.severity, r.measurement, r.enabled)
              is distinct from (excluded.grain, excluded.priority, excluded.tests, excluded.verdict, excluded.severity,
                                excluded.measurement, excluded.enabled);
    select v_before is distinct from
           md5(string_agg(concat_ws('|', r.code, r.grain, r.priority, r.tests, r.verdict, r.severity, r.measurement, r.enabled), E'\n'
               order by r.code)) into changed from public.gov_verdict_rule r;
    if changed then
        update public.dot_config set value = (value::int + 1)::text
         where key = 'governance.ruleset_version' and value ~ '^[0-9]{1,9}$';
        insert into public.gov_invalidation (scope, kind, ruleset_version, source_name, source_key)
        select '{}', 'governance.rules.applied', gov_handoff.gov_ruleset_version(), 'gov_verdict_rule', v_actor;
        perform gov_handoff.gov_audit_write(v_actor, 'verdict_rules', 'rules_applied');
    end if;
    version := gov_handoff.gov_ruleset_version();
    return next;
end
$$;

create function gov_handoff.gov_ruleset_version()
returns int language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(max(case when k.value ~ '^[0-9]{1,9}$' then k.value::int end), 1)
      from public.dot_config k where k.key = 'governance.ruleset_version'
$$;

-- For observers ----------------------------------------------------------------------------------------------------

-- Dirty groups, and those that an open invalidation will mark. Each part is found by its own index; what an invalidation has
-- not reached yet is at most one walk over the groups, and only while it is open.
create view public.v_gov_dirty as
select g.group_key, g.dims, g.dirty_reason, g.dirtied_at, g.generation, g.verdict
  from public.gov_candidate_group g where g.dirty
union all
select g.group_key, g.dims, i.kind, i.created_at, g.generation, g.verdict
  from public.gov_candidate_group g
  cross join lateral (select i.kind, i.created_at from public.gov_invalidation i
                       where i.done_at is null and g.dims @> i.scope and g.group_key > coalesce(i.expanded_to, '')
                       order by i.id limit 1) i
 where not g.dirty and g.group_key > (select min(coalesce(o.expanded_to, '')) from public.gov_invalidation o where o.done_at is null);
comment on view public.v_gov_dirty is 'groups that are to be scanned, also those that an open invalidation has not reached yet';

-- How far the births have come. Nothing here reads a source or the candidates: rows of a source are the server's estimate,
-- the rest is counted by the gates.
create view public.v_gov_coverage as
select 'rows' as measure, c.source_name as class, greatest(k.reltuples, 0)::bigint as n, false as exact
  from public.gov_worker_cursor c
  join public.gov_source_table t on t.source_name = c.source_name
  join pg_catalog.pg_class k on k.oid = t.relation
 where c.worker_name = 'gov_handoff_intake' and c.metadata ? 'id'
union all
select 'handed_off', c.source_name, c.attempts_written, true
  from public.gov_worker_cursor c where c.worker_name = 'gov_handoff_intake' and c.metadata ? 'id'
union all
select 'seeded', c.source_name, c.attempts_written, true
  from public.gov_worker_cursor c where c.worker_name = 'gov_backfill_sweep'
union all
select 'candidates', 'all', greatest(k.reltuples, 0)::bigint, false
  from pg_catalog.pg_class k where k.oid = 'public.gov_candidate_state'::regclass
union all
select t.grain || '_verdict', t.verdict, sum(t.n)::bigint, true
  from public.gov_verdict_tally t group by t.grain, t.verdict having sum(t.n) <> 0;
comment on view public.v_gov_coverage is 'births, seeded and handed-off rows, candidates, and verdicts by class; `exact` is false for estimates of the server';

create view public.v_gov_dead_letter_open as select * from public.v_governance_dead_letter_open;
comment on view public.v_gov_dead_letter_open is 'dead letters that nobody has closed';
create view public.v_gov_certificate as select * from public.v_governance_certificate;
comment on view public.v_gov_certificate is 'the latest certificate of each worker and source';

create view public.v_gov_candidate as
select c.candidate_key, c.object_type, c.group_key, c.group_mark, c.input_quality_state, c.input_reason, c.candidate_verdict, c.verdict_rule,
       c.severity, c.ruleset_version, c.retired, c.dirty, c.last_kind, c.last_occurred_at, c.scanned_at, c.stale_after
  from public.gov_candidate_state c;
comment on view public.v_gov_candidate is 'objects: what the input gate found and the verdict of the last scan';
create view public.v_gov_group as
select g.group_key, g.dims, g.dirty, g.dirty_reason, g.dirtied_at, g.changes, g.members, g.accepted, g.rejected, g.retired, g.verdict,
       g.verdict_rule, g.severity, g.scanned_version, g.last_kind, g.last_occurred_at, g.scanned_at, g.stale_after
  from public.gov_candidate_group g;
comment on view public.v_gov_group is 'groups: counts of members and the verdict of the last scan';

do $$
declare
    f regprocedure;
begin
    foreach f in array array(select p.oid::regprocedure from pg_proc p where p.pronamespace = 'gov_handoff'::regnamespace
                                and p.proname in ('gov_scan_shard', 'gov_scan_divide', 'gov_scan_put', 'gov_scan_stale',
                                                  'gov_verdict_emit', 'gov_verdict_events', 'gov_invalidation_expand', 'gov_rules_put', 'gov_ruleset_version')) loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant select, insert, update, delete on public.gov_verdict_rule, public.gov_scan_control, public.gov_candidate_departure,
    public.gov_verdict_tally to gov_handoff_owner;
grant execute on function gov_handoff.gov_scan_divide, gov_handoff.gov_scan_put, gov_handoff.gov_scan_stale, gov_handoff.gov_invalidation_expand
    to gov_handoff_worker;
grant execute on function gov_handoff.gov_scan_shard, gov_handoff.gov_ruleset_version to gov_handoff_worker, gov_handoff_operator;
grant execute on function gov_handoff.gov_rules_put to gov_handoff_operator;
grant select on public.gov_verdict_rule, public.gov_scan_control, public.gov_candidate_departure, public.gov_verdict_tally,
    public.measurement_registry to gov_handoff_worker, gov_handoff_operator;
grant select on public.v_gov_dirty, public.v_gov_coverage, public.v_gov_dead_letter_open, public.v_gov_certificate,
    public.v_gov_candidate, public.v_gov_group to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
comment on function gov_handoff.gov_scan_shard is 'which of n scans has a group';
comment on function gov_handoff.gov_scan_divide is 'divides the groups among n scans and says how long a verdict counts';
comment on function gov_handoff.gov_scan_put is 'records one page of verdicts';
comment on function gov_handoff.gov_verdict_emit is 'announces verdicts that changed';
comment on function gov_handoff.gov_verdict_events is 'the events of verdicts that changed';
comment on function gov_handoff.gov_scan_stale is 'marks groups whose verdict is past its time';
comment on function gov_handoff.gov_invalidation_expand is 'marks the next groups of the oldest open invalidation';
comment on function gov_handoff.gov_rules_put is 'puts the list of verdict rules in force';
comment on function gov_handoff.gov_ruleset_version is 'the ruleset version in force';
