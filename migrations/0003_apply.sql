-- The function gates are the only way in which gov-handoff writes. They work on sets, are SECURITY DEFINER, and belong to
-- a role that cannot log in (0007). Their search_path has no schema that other roles may write to, and every name inside
-- is qualified. Our own error codes: GH001 lease lost, GH002 ranges changed, GH003 refused, GH004 redefined. This file
-- holds the gates that hand off; the others follow by subject: lease, findings, sources.

-- Identity ---------------------------------------------------------------------------------------------------------

-- A version-8 UUID: 16 bits of the source, an ordered prefix of the key, a hash tail. An integer key is in it whole, so
-- that the indexes grow at their right edge. A uuid or text key gives 32 bits for locality and 74 bits of hash, enough
-- that a billion rows do not collide. With a kind, the UUID is the signal's id; without a kind, it is the row's subject
-- reference. Each part is hashed behind its length, so that no key can imitate another key and a kind.
create function gov_handoff.gov_handoff_identity(p_source text, p_id_type text, p_key text, p_kind text default null)
returns uuid language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    with digest as (
        select encode(substr(sha256(convert_to(p_source, 'UTF8')), 1, 2), 'hex') as tag,
               sha256(convert_to(octet_length(convert_to(p_source, 'UTF8')) || ':' || p_source
                                 || octet_length(convert_to(p_key, 'UTF8')) || ':' || p_key
                                 || coalesce(octet_length(convert_to(p_kind, 'UTF8')) || ':' || p_kind, ''), 'UTF8')) as h
    ), parts as (
        select tag,
               ('x' || encode(substr(h, 1, 8), 'hex'))::bit(64)::bigint as h1,
               ('x0000' || encode(substr(h, 9, 2), 'hex'))::bit(32)::int as h2,
               case when p_id_type in ('int4', 'int8')
                    then p_key::bigint # (-9223372036854775808)::bigint end as k,
               case p_id_type when 'uuid' then substr(replace(lower(p_key), '-', ''), 1, 8)
                    when 'text' then rpad(encode(substr(convert_to(p_key, 'UTF8'), 1, 4), 'hex'), 8, '0') end as prefix
          from digest
    )
    select case when k is not null
        then (tag || lpad(to_hex((k >> 32) & 4294967295), 8, '0')
                  || '8' || lpad(to_hex((k >> 20) & 4095), 3, '0')
                  || to_hex((-9223372036854775808)::bigint | ((k & 1048575) << 42) | (h1 & 4398046511103)))::uuid
        else (tag || prefix
                  || '8' || lpad(to_hex(h2 & 4095), 3, '0')
                  || to_hex((-9223372036854775808)::bigint | (h1 & 4611686018427387903)))::uuid
        end
      from parts
$$;

-- Apply ------------------------------------------------------------------------------------------------------------

-- A row is recorded as the definition in force says. The caller holds `batches` in shared mode, so the definition that is
-- in force here stays in force until the commit. A caller that mapped rows by an older definition gets GH004 and maps
-- them again.
create function gov_handoff.gov_definition_fence(p_version uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from unnest(p_version) as u (version)
                where u.version is not null
                  and not exists (select from public.gov_source_version v where v.version = u.version)) then
        raise exception 'the definition that mapped a row is no longer in force' using errcode = 'GH004';
    end if;
end
$$;

-- Whether (p_ts, p_id) lies ahead of the recorded watermark; integers compare as numbers. The body is parsed when the
-- function is created, so it means the same under every search_path and needs none of its own.
create function gov_handoff.gov_watermark_ahead(p_ts timestamptz, p_id text, p_old_ts timestamptz, p_old_id text,
                                           p_definition jsonb)
returns boolean language sql immutable
return p_id is not null and (
        p_old_id is null
        or p_old_ts is null and p_ts is not null
        or p_ts > p_old_ts
        or (p_ts is not distinct from p_old_ts
            and case when p_definition #>> '{id,type}' in ('int4', 'int8')
                     then p_id::numeric > p_old_id::numeric
                     else p_id collate "C" > p_old_id collate "C" end));

-- Step 2a of a batch: inserts the signals whose type is active. Returns the ids of those that are new.
create function gov_handoff.gov_handoff_emit(
    p_captured_by text, r_source text[], r_table text[], r_kind text[], r_change text[], r_active boolean[],
    r_stream text[], r_severity text[], s_id uuid[], s_ref uuid[], s_rule int[], s_flag smallint[],
    s_object_type text[], s_object_ref text[], s_address text[], s_group text[], s_key text[],
    s_occurred timestamptz[], s_system text[], s_actor text[], s_keep boolean[])
returns uuid[] language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_out uuid[];
    v_n bigint;
begin
    with recorded as (
        insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
            event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system,
            payload_classification, safe_payload, occurred_at)
        select s.id, 'governance', r_kind[s.rule], r_stream[s.rule], r_severity[s.rule], 'immediate',
               r_table[s.rule], s.ref, s.address, s.actor, s.system, 'safe_metadata',
               jsonb_build_object('object_type', s.object_type, 'object_ref', s.object_ref,
                   'canonical_address', s.address, 'group_key', s.grp,
                   'change_kind', r_change[s.rule],
                   'source', r_source[s.rule], 'source_key', s.key, 'occurred_at', s.occurred,
                   'source_system', s.system, 'actor_ref', s.actor, 'captured_by', p_captured_by),
               coalesce(s.occurred, now())
          from unnest(s_id, s_ref, s_rule, s_flag, s_object_type, s_object_ref, s_address, s_group, s_key,
                      s_occurred, s_system, s_actor, s_keep)
               as s (id, ref, rule, flag, object_type, object_ref, address, grp, key, occurred, system, actor, keep)
         where s.flag = 0 and r_active[s.rule] and s.keep is distinct from false
        on conflict do nothing
        returning id
    )
    select array_agg(id), count(*) into v_out, v_n from recorded;
    -- A signal that was not inserted must be there already, under its own id: a renamed table changes the
    -- subject's table, not the id. If it is not there, another event occupies its place in a unique index. Then
    -- the row must not be taken for recorded.
    if v_n < cardinality(s_id) and exists (
        select from unnest(s_id, s_rule, s_flag, s_keep) as s (id, rule, flag, keep)
         where s.flag = 0 and r_active[s.rule] and s.keep is distinct from false
           and not exists (select from public.event_outbox o where o.id = s.id)) then
        raise exception 'another event stands for the subject of a signal' using errcode = 'unique_violation';
    end if;
    return v_out;
end
$$;

-- Step 2b of a batch: captures the signals whose type is inactive, whose producer is not trusted, or that no rule maps. Returns
-- the ids of those that are new, and how many old captures were opened again. p_emitted is how many signals step 2a emitted.
create function gov_handoff.gov_handoff_capture(
    p_worker text, p_captured_by text, p_emitted bigint, r_source text[], r_table text[], r_kind text[],
    r_change text[], r_active boolean[], r_stream text[], r_severity text[], s_id uuid[], s_ref uuid[], s_rule int[],
    s_flag smallint[], s_object_type text[], s_object_ref text[], s_address text[], s_group text[], s_key text[],
    s_occurred timestamptz[], s_system text[], s_actor text[], s_keep boolean[],
    out captured uuid[], out reopened bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_n bigint;
    v_finding record;
begin
    reopened := 0;
    with staged as (
        insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref,
            canonical_address, actor_ref, capture_payload, last_error)
        select s.id, 'governance', r_kind[s.rule], r_table[s.rule], s.ref, s.address, s.actor,
               jsonb_build_object('object_type', s.object_type, 'object_ref', s.object_ref,
                   'canonical_address', s.address, 'group_key', s.grp,
                   'change_kind', r_change[s.rule],
                   'source', r_source[s.rule], 'source_key', s.key, 'occurred_at', s.occurred,
                   'source_system', s.system, 'actor_ref', s.actor, 'captured_by', p_captured_by,
                   -- The outbox has columns for these two. The drain moves them there.
                   'event_stream', r_stream[s.rule], 'event_severity', r_severity[s.rule]),
               case s.flag when 1 then 'untrusted_source' when 2 then 'unmapped' end
          from unnest(s_id, s_ref, s_rule, s_flag, s_object_type, s_object_ref, s_address, s_group, s_key,
                      s_occurred, s_system, s_actor, s_keep)
               as s (id, ref, rule, flag, object_type, object_ref, address, grp, key, occurred, system, actor, keep)
         where not (s.flag = 0 and r_active[s.rule]) and s.keep is distinct from false
           -- A signal that was emitted before its type was deactivated stays in the outbox.
           and not exists (select from public.event_outbox o where o.id = s.id)
        on conflict (id) do nothing
        returning id
    )
    select array_agg(id), count(*) into captured, v_n from staged;

    -- A capture may have been drained, then lost from the outbox, then found missing by an audit while its type
    -- is inactive again. Its capture is reopened here, because nothing else would ever record it. It is not new:
    -- its groups were marked when it was captured.
    if p_emitted + v_n < cardinality(s_id) then
        update public.event_pending p set processed_at = null
          from unnest(s_id, s_rule, s_flag, s_keep) as s (id, rule, flag, keep)
         where p.id = s.id and p.processed_at is not null and not (s.flag = 0 and r_active[s.rule])
           and s.keep is distinct from false
           and not exists (select from public.event_outbox o where o.id = s.id);
        get diagnostics reopened = row_count;
    end if;

    if v_n > 0 then
        for v_finding in
            select distinct f.flag, r_kind[f.rule] as kind, r_source[f.rule] as source,
                   -- The source's definition says by which column producers are told apart, whichever worker
                   -- holds this lease.
                   case when f.flag = 1
                        then case (select c.metadata #>> '{trust,by}' from public.gov_worker_cursor c
                                    where c.source_name = r_source[f.rule] and c.metadata ? 'id'
                                    order by c.worker_name = p_worker desc limit 1)
                             when 'actor_ref' then f.actor else f.system end end as producer
              from unnest(s_rule, s_flag, s_system, s_actor) as f (rule, flag, system, actor)
             where f.flag > 0 or not r_active[f.rule]
        loop
            if v_finding.flag = 1 then
                perform gov_handoff.gov_finding_raise('untrusted_source',
                    'untrusted_source:' || v_finding.source || ':' || v_finding.producer, 'warning',
                    jsonb_build_object('source', v_finding.source, 'producer', v_finding.producer), true);
            else
                perform gov_handoff.gov_finding_raise('handoff_unregistered_type',
                    'handoff_unregistered_type:' || v_finding.kind
                        || case when v_finding.flag = 2 then ':' || v_finding.source else '' end,
                    'info', jsonb_build_object('event_type', v_finding.kind, 'source', v_finding.source), true);
            end if;
        end loop;
    end if;
end
$$;

-- The marks of groups and objects. Every gate that records or seeds marks through here; only the gate for a lone signal
-- contains the same statements itself (tests/copies.rs compares them).
--
-- g_* are groups, each once, sorted by key as bytes. o_* are the changes of objects, in any order and with repetitions:
-- the latest change of an object decides its group, and a birth that is not the latest change is still a birth. Groups
-- come first, because an object notes the generation of its group. All transactions take these locks in one order: groups
-- by key, then objects by key.
create function gov_handoff.gov_marks_put(
    p_ruleset int, g_key text[], g_dims jsonb[], g_latest timestamptz[], g_kind text[], g_count int[],
    o_address text[], o_type text[], o_group text[], o_source text[], o_key text[], o_kind text[], o_occurred timestamptz[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_generation jsonb;
    v_elsewhere text[];
begin
    with groups as (
        insert into public.gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at,
            last_kind)
        select g.key, g.dims, g.kind, now(), g.changes, g.latest, g.kind
          from unnest(g_key, g_dims, g_kind, g_count, g_latest) as g (key, dims, kind, changes, latest)
        on conflict (group_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, changes = c.changes + excluded.changes,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at),
                last_kind = case when (coalesce(excluded.last_occurred_at, '-infinity'), excluded.last_kind collate "C")
                                      > (coalesce(c.last_occurred_at, '-infinity'), coalesce(c.last_kind, '') collate "C")
                                 then excluded.last_kind else c.last_kind end
        returning c.group_key, c.generation
    )
    -- An object, not a join: one plan serves all batches, and a join under it would compare every pair.
    select jsonb_object_agg(g.group_key, g.generation) into v_generation from groups g;

    if coalesce(cardinality(o_address), 0) = 0 then
        return;
    end if;
    with latest as (
        select distinct on (o.address collate "C") o.*, min(o.born) over same as born_key,
               min(o.born) over same <> max(o.born) over same as conflict, bool_or(o.retires) over same as retired
          from (select u.address, u.type, u.grp, u.source, u.key, u.kind, u.occurred,
                       case when u.kind = 'governance.handoff.object_born' then u.source || ':' || u.key end collate "C" as born,
                       u.kind = 'governance.handoff.object_retired' as retires
                  from unnest(o_address, o_type, o_group, o_source, o_key, o_kind, o_occurred)
                       as u (address, type, grp, source, key, kind, occurred)) o
        window same as (partition by o.address collate "C")
         order by o.address collate "C", coalesce(o.occurred, '-infinity') desc, o.grp collate "C" desc,
                  o.source collate "C" desc, o.key collate "C" desc, o.kind collate "C" desc
    ), objects as (
        insert into public.gov_candidate_state as c (candidate_key, ruleset_version, object_type, group_key, group_mark,
            dirty_reason, dirtied_at, last_occurred_at, last_kind, source_name, source_key, born_key, key_conflict, retired)
        select l.address, p_ruleset, l.type, l.grp, (v_generation ->> l.grp)::bigint, l.kind, now(), l.occurred, l.kind,
               l.source, l.key, l.born_key, coalesce(l.conflict, false), l.retired
          from latest l
        on conflict (candidate_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1,
                (object_type, group_key, group_mark, last_occurred_at, last_kind, source_name, source_key) = (
                    select t.type, t.grp, case when t.grp = excluded.group_key then excluded.group_mark else 9223372036854775807 end,
                           t.occurred, t.kind, t.source, t.key
                      from (values (excluded.object_type, excluded.group_key, excluded.last_occurred_at, excluded.last_kind,
                                    excluded.source_name, excluded.source_key),
                                   (c.object_type, c.group_key, c.last_occurred_at, c.last_kind, c.source_name, c.source_key))
                           as t (type, grp, occurred, kind, source, key)
                     order by coalesce(t.occurred, '-infinity') desc, t.grp collate "C" desc,
                              t.source collate "C" desc nulls last, t.key collate "C" desc nulls last,
                              t.kind collate "C" desc nulls last
                     limit 1),
                born_key = least(c.born_key collate "C", excluded.born_key),
                key_conflict = c.key_conflict or excluded.key_conflict or coalesce(c.born_key <> excluded.born_key, false),
                retired = c.retired or excluded.retired,
                -- What the input gate found may not hold any more.
                input_quality_state = case when c.input_quality_state = 'rejected' or c.born_key is null and excluded.born_key is not null
                        or not c.key_conflict and (excluded.key_conflict or coalesce(c.born_key <> excluded.born_key, false))
                    then 'pending' else c.input_quality_state end,
                input_reason = null
        returning c.group_key, c.group_mark
    )
    select array_agg(distinct o.group_key) into v_elsewhere from objects o where o.group_mark = 9223372036854775807;
    -- An older change was delivered late: the object stays in its group, which has to be scanned, too.
    if v_elsewhere is not null then
        perform gov_handoff.gov_groups_touch(v_elsewhere, 'late_change');
    end if;
end
$$;

-- Marks existing groups that had no change of their own.
create function gov_handoff.gov_groups_touch(p_groups text[], p_reason text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with locked as (
        select g.group_key from public.gov_candidate_group g where g.group_key = any (p_groups)
         order by g.group_key collate "C" for no key update
    )
    update public.gov_candidate_group g
       set dirty = true, dirty_reason = p_reason, dirtied_at = now(), generation = g.generation + 1
      from locked l where g.group_key = l.group_key
$$;

-- Step 3 of a batch: marks the groups and objects of new signals, raises the ruleset version where a rule says so, and
-- notes which invalidations the batch brings. It expands none of them: a batch that concerns every group costs as much as
-- any other.
create function gov_handoff.gov_handoff_mark(
    p_new uuid[], p_ruleset int, r_source text[], r_kind text[], r_bumps boolean[], s_id uuid[], s_rule int[],
    s_flag smallint[], s_object boolean[], s_object_type text[], s_address text[], s_group text[], s_key text[],
    s_occurred timestamptz[], s_scope jsonb[], g_key text[], g_dims jsonb[], g_latest timestamptz[], g_reason text[],
    g_count int[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_n bigint;
begin
    if true = any (r_bumps) then
        -- EXECUTE, so that the statement is planned again each time: with thousands of signals a cached plan
        -- would compare every pair.
        execute 'select count(*) from unnest($1, $2, $3) as s (id, rule, flag)
                  where ($4)[s.rule] and s.flag = 0 and s.id in (select unnest($5))'
           into v_n using s_id, s_rule, s_flag, r_bumps, p_new;
        if v_n > 0 then
            -- A value that is not a number is left as it is. Only an operator can say what it should have been.
            update public.dot_config set value = (value::int + 1)::text
             where key = 'governance.ruleset_version' and value ~ '^[0-9]{1,9}$'
            returning value::int into v_n;
            p_ruleset := coalesce(v_n, p_ruleset);
        end if;
    end if;
    if cardinality(array_remove(s_scope, null)) > 0 then
        execute 'insert into public.gov_invalidation (scope, kind, ruleset_version, source_name, source_key)
                 select distinct on (s.scope, ($3)[s.rule]) s.scope, ($3)[s.rule], $8, ($7)[s.rule], s.key
                   from unnest($1, $2, $4, $5, $9) with ordinality as s (id, rule, flag, scope, key, n)
                  where s.scope is not null and s.flag = 0 and s.id in (select unnest($6))
                  order by s.scope, ($3)[s.rule], s.n desc'
          using s_id, s_rule, r_kind, s_flag, s_scope, p_new, r_source, p_ruleset, s_key;
    end if;

    -- Marks come last among the effects: batches share these rows, so their locks should be held for the shortest
    -- time.
    if cardinality(p_new) = cardinality(s_id) then
        perform gov_handoff.gov_marks_put(
            p_ruleset => p_ruleset, g_key => g_key, g_dims => g_dims, g_latest => g_latest, g_kind => g_reason,
            g_count => g_count, o_address => o.address, o_type => o.type, o_group => o.grp, o_source => o.source,
            o_key => o.key, o_kind => o.kind, o_occurred => o.occurred)
          from (select array_agg(s.address) as address, array_agg(s.type) as type, array_agg(s.grp) as grp,
                       array_agg(r_source[s.rule]) as source, array_agg(s.key) as key, array_agg(r_kind[s.rule]) as kind,
                       array_agg(s.occurred) as occurred
                  from unnest(s_object, s_rule, s_object_type, s_address, s_group, s_key, s_occurred)
                       as s (object, rule, type, address, grp, key, occurred)
                 where s.object is not null) o;
    else
        perform gov_handoff.gov_handoff_mark_new(p_new => p_new, p_ruleset => p_ruleset, r_source => r_source,
            r_kind => r_kind, s_id => s_id, s_rule => s_rule, s_flag => s_flag, s_object => s_object,
            s_object_type => s_object_type, s_address => s_address, s_group => s_group, s_key => s_key,
            s_occurred => s_occurred, g_key => g_key, g_dims => g_dims);
    end if;
end
$$;

-- Steps 4 and 5 of a batch: moves ranges, cursors and the stream's position, and checks the fence last.
create function gov_handoff.gov_handoff_advance(
    p_worker text, p_owner text, p_term bigint, c_source text[], c_ts timestamptz[], c_id text[], c_seen bigint[],
    c_signals bigint[], x_source text, x_closed_lo bigint[], x_closed_hi bigint[], x_open_lo bigint[],
    x_open_hi bigint[], l_slot text, l_lsn pg_lsn)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_n bigint;
begin
    if x_source is not null then
        perform gov_handoff.gov_gap_replace(p_worker, x_source, x_closed_lo, x_closed_hi, x_open_lo, x_open_hi);
    end if;

    -- One statement moves cursors, position and lease, because starting a statement is most of its cost. The watermark is
    -- for order, lag and people. It only moves forward, and a hole that is filled late does not move it. The fence is an
    -- UPDATE, as in gov_lease_fence: its row lock orders this commit against a takeover. Nothing but the commit follows
    -- it.
    with cursors as (
        update public.gov_worker_cursor c
           set events_seen = c.events_seen + u.seen,
               attempts_written = c.attempts_written + u.signals,
               last_run_at = clock_timestamp(), updated_at = clock_timestamp(),
               last_watermark_ts = case
                   when gov_handoff.gov_watermark_ahead(u.ts, u.id, c.last_watermark_ts, c.last_watermark_id, c.metadata)
                   then u.ts else c.last_watermark_ts end,
               last_watermark_id = case
                   when gov_handoff.gov_watermark_ahead(u.ts, u.id, c.last_watermark_ts, c.last_watermark_id, c.metadata)
                   then u.id else c.last_watermark_id end
          from unnest(c_source, c_ts, c_id, c_seen, c_signals) as u (source, ts, id, seen, signals)
         where c.worker_name = p_worker and c.source_name = u.source
    ), moved as (
        update public.gov_stream_position set durable_lsn = l_lsn, updated_at = clock_timestamp()
         where slot_name = l_slot and durable_lsn < l_lsn
    ), fence as (
        update public.queue_heartbeat
           set last_tick_at = clock_timestamp(), ticks_total = ticks_total + 1, last_tick_status = 'ok'
         where executor_name = p_worker and lease_owner = p_owner and (metadata ->> 'term')::bigint = p_term
           and last_tick_at > clock_timestamp() - (metadata ->> 'ttl_ms')::bigint * interval '1 millisecond'
        returning 1
    )
    select count(*) into v_n from fence;
    if v_n = 0 then
        raise exception 'lease % is no longer held by % in term %', p_worker, p_owner, p_term using errcode = 'GH001';
    end if;
end
$$;

-- One batch: one statement of the client, one commit. The steps, in this order:
--
--   1. read the types under a shared lock: a concurrent activation waits for this commit, or this batch sees it;
--   2. insert signals and captures by identity;
--   3. mark groups and objects, for new signals only, and give the new signals their positions in the feed (0019);
--   4. move ranges, cursors and the stream's position;
--   5. check the fence, last.
--
-- All or nothing: the position moves only with the effects that it stands for.
--
-- The daemon's writing sessions run in UTC, with one plan for all batches and without table scans (store/connect.rs). The
-- session sets this once. Setting it here, for each call, would cost a seventh of the time that recording a lone row
-- takes.
--
-- r_* describe the rules that matched in this batch. s_* are the signals, sorted by id: s_rule is an index into r_*;
-- s_flag is 0 for normal, 1 for untrusted, 2 for unmapped; s_object marks the one signal that stands for its object. g_*
-- are the coalesced groups, sorted by key. c_* are the cursors of the sources. x_* are the open id ranges of one source.
-- l_* is the replication slot. d_version names the definitions that mapped the rows. s_number is the key of a row whose
-- key is an integer; retention remembers the row by it.
create function gov_handoff.gov_handoff_apply(
    p_worker text, p_owner text, p_term bigint, p_captured_by text,
    r_source text[], r_table text[], r_kind text[], r_stream text[], r_severity text[], r_bumps boolean[],
    s_id uuid[], s_ref uuid[], s_rule int[], s_flag smallint[], s_object boolean[], s_object_type text[],
    s_object_ref text[], s_address text[], s_group text[], s_key text[], s_occurred timestamptz[], s_system text[],
    s_actor text[], s_scope jsonb[],
    g_key text[], g_dims jsonb[], g_latest timestamptz[], g_reason text[], g_count int[],
    c_source text[], c_ts timestamptz[], c_id text[], c_seen bigint[], c_signals bigint[],
    x_source text, x_closed_lo bigint[], x_closed_hi bigint[], x_open_lo bigint[], x_open_hi bigint[],
    l_slot text, l_lsn pg_lsn, d_version uuid[], s_number bigint[])
returns table (emitted bigint, captured bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_active boolean[];
    v_change text[];
    v_any_active boolean;
    v_ruleset int;
    v_pending boolean;
    v_retired boolean;
    v_reused boolean;
    v_backlog boolean;
    v_keep boolean[];
    v_out uuid[];
    v_fed uuid[];
    v_captured uuid[];
    v_emitted_n int := 0;
    v_reopened_n bigint := 0;
    v_new uuid[];
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
    end if;
    -- An operator who replays letters reads tables. Only the daemon reads a slot, and only its position moves here: a
    -- position that somebody else sets would be acknowledged to the server at the next start, and rows skipped.
    if l_slot is not null and p_worker = 'gov_handoff_dlq' then
        raise exception 'the position of a slot is the daemon''s to move' using errcode = '42501';
    end if;
    -- Held in shared mode until the commit: no gate changes a type or a definition, or retires a signal, while this batch
    -- runs.
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(d_version);
    if cardinality(s_id) > 0 then
        if cardinality(array_remove(d_version, null)) = 0 then
            raise exception 'expected the definition that mapped the rows, found none' using errcode = 'GH003';
        end if;
        select array_agg(coalesce(t.active, false) order by k.n), coalesce(bool_or(t.active), false),
               array_agg(regexp_replace(k.kind, '^governance\.handoff\.', '') order by k.n),
               (select exists (select from public.event_pending)),
               (select exists (select from public.gov_retired_range) or exists (select from public.gov_retired_signal)),
               (select exists (select from public.gov_reused_key)),
               (select exists (select from public.gov_source_boundary b
                                where b.source_name = any (r_source) and b.policy <> 'hand_off' and b.row_count > 0)),
               -- A value that is not a number must not make every row a poison row. The watchdog raises a finding about
               -- it.
               (select coalesce(max(case when value ~ '^[0-9]{1,9}$' then value::int end), 1)
                  from public.dot_config where key = 'governance.ruleset_version')
          into v_active, v_any_active, v_change, v_pending, v_retired, v_reused, v_backlog, v_ruleset
          from unnest(r_kind) with ordinality as k (kind, n)
          left join public.event_type_registry t on t.event_domain = 'governance' and t.event_type = k.kind;

        -- A retired signal was recorded, certified and removed. It is not recorded again, whichever path brings its row
        -- again. Two more kinds of signal are left out: one whose key another row had before, and one under whose
        -- identity a capture of another row waits. The pass that notices the reused key gives such a signal an identity
        -- of its own. If this gate recorded it too, it would be there twice. Last, a row of the backlog has no signal
        -- (0015), except when an operator replays it: then it leaves the backlog in this commit.
        if v_backlog and p_captured_by = 'replay' then
            perform gov_handoff.gov_backlog_release(u.source, array_agg(u.number), array_agg(u.ref))
               from (select r_source[s.rule] as source, s.number, s.ref from unnest(s_ref, s_rule, s_number) as s (ref, rule, number)) u
              group by u.source;
        end if;
        if v_retired or v_pending or v_reused or v_backlog then
            select array_agg(not (v_retired and (
                                 exists (select from public.gov_retired_signal r where r.id = s.id)
                                 or exists (select from public.gov_retired_range r
                                             where r.source_name = r_source[s.rule] and s.number between r.lo and r.hi)))
                             and not (v_reused and exists (select from public.gov_reused_key k where k.subject = s.ref))
                             and not (v_backlog and exists (
                                 select from public.gov_source_boundary b
                                  where b.source_name = r_source[s.rule] and b.policy <> 'hand_off' and b.row_count > 0
                                    and case when s.number is not null
                                             then coalesce((select g.hi >= s.number from public.gov_backlog_range g
                                                             where g.boundary = b.boundary and g.lo <= s.number
                                                             order by g.lo desc limit 1), false)
                                             else exists (select from public.gov_backlog_key k
                                                           where k.boundary = b.boundary and k.subject = s.ref) end))
                             and not (v_pending and exists (
                                 select from public.event_pending p
                                  where p.id = s.id and p.processed_at is null
                                    and p.capture_payload ->> 'object_ref' is distinct from s.object_ref))
                             order by s.n)
              into v_keep
              from unnest(s_id, s_ref, s_rule, s_number, s_object_ref) with ordinality as s (id, ref, rule, number, object_ref, n);
        end if;

        if v_any_active then
            v_out := gov_handoff.gov_handoff_emit(
                p_captured_by => p_captured_by, r_source => r_source, r_table => r_table, r_kind => r_kind,
                r_change => v_change, r_active => v_active, r_stream => r_stream, r_severity => r_severity,
                s_id => s_id, s_ref => s_ref, s_rule => s_rule, s_flag => s_flag, s_object_type => s_object_type,
                s_object_ref => s_object_ref, s_address => s_address, s_group => s_group, s_key => s_key,
                s_occurred => s_occurred, s_system => s_system, s_actor => s_actor, s_keep => v_keep);
            v_emitted_n := coalesce(cardinality(v_out), 0);
            v_fed := v_out;
        end if;
        if false = any (v_active) or 1 = any (s_flag) or 2 = any (s_flag) then
            select c.captured, c.reopened into v_captured, v_reopened_n from gov_handoff.gov_handoff_capture(
                p_worker => p_worker, p_captured_by => p_captured_by, p_emitted => v_emitted_n, r_source => r_source,
                r_table => r_table, r_kind => r_kind, r_change => v_change, r_active => v_active, r_stream => r_stream,
                r_severity => r_severity, s_id => s_id, s_ref => s_ref, s_rule => s_rule, s_flag => s_flag,
                s_object_type => s_object_type, s_object_ref => s_object_ref, s_address => s_address,
                s_group => s_group, s_key => s_key, s_occurred => s_occurred, s_system => s_system, s_actor => s_actor,
                s_keep => v_keep) c;
        end if;

        -- A signal that was captured while its type was inactive, and is emitted now, was recorded before: it does
        -- not mark its groups again. A signal that was captured as untrusted has not marked anything yet.
        if v_pending and v_emitted_n > 0 then
            select array_agg(u.id) into v_out from unnest(v_out) as u (id)
             where not exists (select from public.event_pending p
                                where p.id = u.id and p.last_error is distinct from 'untrusted_source');
        end if;
        v_new := coalesce(v_out, '{}') || coalesce(v_captured, '{}');
        if cardinality(v_new) > 0 then
            perform gov_handoff.gov_handoff_mark(
                p_new => v_new, p_ruleset => v_ruleset, r_source => r_source, r_kind => r_kind, r_bumps => r_bumps,
                s_id => s_id, s_rule => s_rule, s_flag => s_flag, s_object => s_object, s_object_type => s_object_type,
                s_address => s_address, s_group => s_group, s_key => s_key, s_occurred => s_occurred, s_scope => s_scope,
                g_key => g_key, g_dims => g_dims, g_latest => g_latest, g_reason => g_reason, g_count => g_count);
        end if;
    end if;
    -- The lock of the feed comes last but for the fence, so that it is held for the shortest time.
    if v_emitted_n > 0 then
        perform gov_handoff.gov_feed_signals(p_new => v_fed, r_table => r_table, r_kind => r_kind, r_stream => r_stream,
            r_severity => r_severity, s_id => s_id, s_ref => s_ref, s_rule => s_rule, s_actor => s_actor);
    end if;
    -- Rows of the outbox itself are events that somebody inserted, perhaps past every gate. They are noted for the feed as
    -- soon as the stream brings them.
    if 'event_outbox' = any (r_table) then
        perform gov_handoff.gov_feed_note(array(
            select distinct s.key::uuid from unnest(s_key, s_rule) as s (key, rule)
             where r_table[s.rule] = 'event_outbox' and s.key ~ '^[0-9a-f-]{36}$'));
    end if;
    perform gov_handoff.gov_handoff_advance(
        p_worker => p_worker, p_owner => p_owner, p_term => p_term, c_source => c_source, c_ts => c_ts, c_id => c_id,
        c_seen => c_seen, c_signals => c_signals, x_source => x_source, x_closed_lo => x_closed_lo,
        x_closed_hi => x_closed_hi, x_open_lo => x_open_lo, x_open_hi => x_open_hi, l_slot => l_slot, l_lsn => l_lsn);
    emitted := v_emitted_n;
    captured := coalesce(cardinality(v_captured), 0) + v_reopened_n;
    return next;
end
$$;

-- gov_handoff_apply for a batch of one signal, which is how births arrive on a quiet system. It costs half as much:
-- without arrays there is nothing to join, and the server has half the plan to set up. The steps, the locks and the
-- effects are the same, in the same order; a test compares them. A signal whose type is not active goes through
-- gov_handoff_apply, which captures it. The result is an array, (emitted, captured), because the server would treat a row
-- as a table function.
create function gov_handoff.gov_handoff_apply_one(
    p_worker text, p_owner text, p_term bigint, p_captured_by text,
    r_source text, r_table text, r_kind text, r_change text, r_stream text, r_severity text,
    s_id uuid, s_ref uuid, s_object boolean, s_object_type text, s_object_ref text, s_address text, s_group text,
    s_key text, s_occurred timestamptz, s_system text, s_actor text, g_dims jsonb,
    c_ts timestamptz, c_id text, l_slot text, l_lsn pg_lsn, d_version uuid, s_number bigint)
returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_active boolean;
    v_pending boolean;
    v_retired boolean;
    v_backlog boolean;
    v_current boolean;
    v_ruleset int;
    v_emitted bigint;
    v_last bigint;
    v_elsewhere text;
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
    end if;
    -- An operator who replays letters reads tables. Only the daemon reads a slot, and only its position moves here: a
    -- position that somebody else sets would be acknowledged to the server at the next start, and rows skipped.
    if l_slot is not null and p_worker = 'gov_handoff_dlq' then
        raise exception 'the position of a slot is the daemon''s to move' using errcode = '42501';
    end if;
    perform from gov_handoff.batches;
    select t.active,
           exists (select from public.event_pending p where p.id = s_id and p.last_error is distinct from 'untrusted_source'),
           coalesce((select case when value ~ '^[0-9]{1,9}$' then value::int end
                       from public.dot_config where key = 'governance.ruleset_version'), 1),
           -- True as well if the key is another row's; see `gov_handoff_apply`.
           exists (select from public.gov_retired_signal r where r.id = s_id)
               or exists (select from public.gov_retired_range r where r.source_name = r_source and s_number between r.lo and r.hi)
               or exists (select from public.gov_reused_key k where k.subject = s_ref)
               or exists (select from public.event_pending p where p.id = s_id and p.processed_at is null
                             and p.capture_payload ->> 'object_ref' is distinct from s_object_ref),
           -- The row is in the backlog of its source (0015).
           exists (select from public.gov_source_boundary b
                    where b.source_name = r_source and b.policy <> 'hand_off' and b.row_count > 0
                      and case when s_number is not null
                               then coalesce((select g.hi >= s_number from public.gov_backlog_range g
                                               where g.boundary = b.boundary and g.lo <= s_number
                                               order by g.lo desc limit 1), false)
                               else exists (select from public.gov_backlog_key k
                                             where k.boundary = b.boundary and k.subject = s_ref) end),
           exists (select from public.gov_source_version v where v.version = d_version)
      into v_active, v_pending, v_ruleset, v_retired, v_backlog, v_current
      from public.event_type_registry t where t.event_domain = 'governance' and t.event_type = r_kind;
    if v_active is not true or v_backlog and p_captured_by = 'replay' then
        return (select array[a.emitted, a.captured] from gov_handoff.gov_handoff_apply(p_worker, p_owner, p_term, p_captured_by,
            array[r_source], array[r_table], array[r_kind], array[r_stream], array[r_severity], array[false],
            array[s_id], array[s_ref], array[1], array[0::smallint], array[s_object], array[s_object_type],
            array[s_object_ref], array[s_address], array[s_group], array[s_key], array[s_occurred], array[s_system],
            array[s_actor], array[null::jsonb],
            array[s_group], array[g_dims], array[s_occurred], array[r_kind], array[1],
            array[r_source], array[c_ts], array[c_id], array[1::bigint], array[1::bigint],
            null, '{}', '{}', '{}', '{}', l_slot, l_lsn, array[d_version], array[s_number]) a);
    end if;
    if not v_current then
        raise exception 'the definition that mapped a row is no longer in force' using errcode = 'GH004';
    end if;

    with recorded as (
        insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
            event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system,
            payload_classification, safe_payload, occurred_at)
        select s_id, 'governance', r_kind, r_stream, r_severity, 'immediate', r_table, s_ref, s_address, s_actor,
            s_system, 'safe_metadata',
            jsonb_build_object('object_type', s_object_type, 'object_ref', s_object_ref,
                'canonical_address', s_address, 'group_key', s_group, 'change_kind', r_change,
                'source', r_source, 'source_key', s_key, 'occurred_at', s_occurred,
                'source_system', s_system, 'actor_ref', s_actor, 'captured_by', p_captured_by),
            coalesce(s_occurred, now())
         where not v_retired and not v_backlog
        on conflict do nothing
        returning 1
    ), groups as (
        insert into public.gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at,
            last_kind)
        -- A signal that was captured while its type was inactive, and is emitted now, was recorded before: it marks
        -- nothing again.
        select s_group, g_dims, r_kind, now(), 1, s_occurred, r_kind from recorded where not v_pending
        on conflict (group_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, changes = c.changes + excluded.changes,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at),
                last_kind = case when (coalesce(excluded.last_occurred_at, '-infinity'), excluded.last_kind collate "C")
                                      > (coalesce(c.last_occurred_at, '-infinity'), coalesce(c.last_kind, '') collate "C")
                                 then excluded.last_kind else c.last_kind end
        returning c.generation
    ), objects as (
        insert into public.gov_candidate_state as c (candidate_key, ruleset_version, object_type, group_key, group_mark,
            dirty_reason, dirtied_at, last_occurred_at, last_kind, source_name, source_key, born_key, key_conflict, retired)
        select s_address, v_ruleset, s_object_type, s_group, g.generation, r_kind, now(), s_occurred, r_kind, r_source, s_key,
               case when r_kind = 'governance.handoff.object_born' then r_source || ':' || s_key end, false,
               r_kind = 'governance.handoff.object_retired'
          from groups g where s_object
        on conflict (candidate_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1,
                (object_type, group_key, group_mark, last_occurred_at, last_kind, source_name, source_key) = (
                    select t.type, t.grp, case when t.grp = excluded.group_key then excluded.group_mark else 9223372036854775807 end,
                           t.occurred, t.kind, t.source, t.key
                      from (values (excluded.object_type, excluded.group_key, excluded.last_occurred_at, excluded.last_kind,
                                    excluded.source_name, excluded.source_key),
                                   (c.object_type, c.group_key, c.last_occurred_at, c.last_kind, c.source_name, c.source_key))
                           as t (type, grp, occurred, kind, source, key)
                     order by coalesce(t.occurred, '-infinity') desc, t.grp collate "C" desc,
                              t.source collate "C" desc nulls last, t.key collate "C" desc nulls last,
                              t.kind collate "C" desc nulls last
                     limit 1),
                born_key = least(c.born_key collate "C", excluded.born_key),
                key_conflict = c.key_conflict or excluded.key_conflict or coalesce(c.born_key <> excluded.born_key, false),
                retired = c.retired or excluded.retired,
                -- What the input gate found may not hold any more.
                input_quality_state = case when c.input_quality_state = 'rejected' or c.born_key is null and excluded.born_key is not null
                        or not c.key_conflict and (excluded.key_conflict or coalesce(c.born_key <> excluded.born_key, false))
                    then 'pending' else c.input_quality_state end,
                input_reason = null
        returning c.group_key, c.group_mark
    )
    select (select count(*) from recorded), (select o.group_key from objects o where o.group_mark = 9223372036854775807)
      into v_emitted, v_elsewhere;
    if v_elsewhere is not null then
        perform gov_handoff.gov_groups_touch(array[v_elsewhere], 'late_change');
    end if;
    if v_emitted = 0 and not v_retired and not v_backlog and not exists (select from public.event_outbox o where o.id = s_id) then
        raise exception 'another event stands for the subject of a signal' using errcode = 'unique_violation';
    end if;
    if v_emitted > 0 then
        v_last := gov_handoff.gov_feed_lock();
        -- A signal that was lost from the outbox and is recorded again keeps its position.
        insert into public.event_feed (pos, event_id, event_domain, event_type, event_stream, event_severity,
            event_subject_table, event_subject_ref, actor_ref)
        values (v_last + 1, s_id, 'governance', r_kind, r_stream, r_severity, r_table, s_ref, s_actor)
        on conflict (event_id) do nothing;
    end if;
    if r_table = 'event_outbox' and s_key ~ '^[0-9a-f-]{36}$' then
        perform gov_handoff.gov_feed_note(array[s_key::uuid]);
    end if;

    with cursors as (
        update public.gov_worker_cursor c
           set events_seen = c.events_seen + 1, attempts_written = c.attempts_written + 1,
               last_run_at = clock_timestamp(), updated_at = clock_timestamp(),
               last_watermark_ts = case
                   when gov_handoff.gov_watermark_ahead(c_ts, c_id, c.last_watermark_ts, c.last_watermark_id, c.metadata)
                   then c_ts else c.last_watermark_ts end,
               last_watermark_id = case
                   when gov_handoff.gov_watermark_ahead(c_ts, c_id, c.last_watermark_ts, c.last_watermark_id, c.metadata)
                   then c_id else c.last_watermark_id end
         where c.worker_name = p_worker and c.source_name = r_source
    )
    update public.queue_heartbeat
       set last_tick_at = clock_timestamp(), ticks_total = ticks_total + 1, last_tick_status = 'ok'
     where executor_name = p_worker and lease_owner = p_owner and (metadata ->> 'term')::bigint = p_term
       and last_tick_at > clock_timestamp() - (metadata ->> 'ttl_ms')::bigint * interval '1 millisecond';
    if not found then
        raise exception 'lease % is no longer held by % in term %', p_worker, p_owner, p_term using errcode = 'GH001';
    end if;
    -- The stream often passes no slot: for one signal the position would be another page to write. The position comes
    -- after lease and cursor, as in gov_handoff_apply.
    if l_slot is not null then
        update public.gov_stream_position set durable_lsn = l_lsn, updated_at = clock_timestamp()
         where slot_name = l_slot and durable_lsn < l_lsn;
    end if;
    return array[v_emitted, 0];
end
$$;

-- The same marks when only a part of the batch was new. Every new signal counts here, not only those that stand for their
-- object: these may have been recorded before. EXECUTE plans the statement again each time, because it needs a join.
create function gov_handoff.gov_handoff_mark_new(
    p_new uuid[], p_ruleset int, r_source text[], r_kind text[], s_id uuid[], s_rule int[], s_flag smallint[],
    s_object boolean[], s_object_type text[], s_address text[], s_group text[], s_key text[], s_occurred timestamptz[],
    g_key text[], g_dims jsonb[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    execute $q$
        with fresh as materialized (
            select s.*, ($3)[s.rule] as source, ($4)[s.rule] as kind
              from unnest($5, $6, $7, $8, $9, $10, $11, $12, $13)
                   as s (id, rule, flag, object, type, address, grp, key, occurred)
             where s.flag = 0 and s.id in (select unnest($1))
        ), groups as (
            select f.grp, min(g.dims::text)::jsonb as dims, max(f.occurred) as latest, count(*)::int as changes,
                   (array_agg(f.kind order by coalesce(f.occurred, '-infinity') desc, f.kind collate "C" desc))[1] as kind
              from fresh f join unnest($14, $15) as g (key, dims) on g.key = f.grp
             group by f.grp
        ), g as (
            select array_agg(grp order by grp collate "C") as key, array_agg(dims order by grp collate "C") as dims,
                   array_agg(latest order by grp collate "C") as latest, array_agg(kind order by grp collate "C") as kind,
                   array_agg(changes order by grp collate "C") as changes from groups
        ), o as (
            select array_agg(address) as address, array_agg(type) as type, array_agg(grp) as grp, array_agg(source) as source,
                   array_agg(key) as key, array_agg(kind) as kind, array_agg(occurred) as occurred
              from fresh where object is not null
        )
        select gov_handoff.gov_marks_put(
                   p_ruleset => $2, g_key => g.key, g_dims => g.dims, g_latest => g.latest, g_kind => g.kind,
                   g_count => g.changes, o_address => o.address, o_type => o.type, o_group => o.grp, o_source => o.source,
                   o_key => o.key, o_kind => o.kind, o_occurred => o.occurred)
          from g, o
    $q$ using p_new, p_ruleset, r_source, r_kind, s_id, s_rule, s_flag, s_object, s_object_type, s_address, s_group, s_key,
              s_occurred, g_key, g_dims;
end
$$;

-- The marks of objects that are seeded: they become candidates, and their groups dirty, but no change is counted. A row
-- that its object was born as, or whose change is the object's latest, is known already and marks nothing again. Returns
-- how many objects were marked. Only gates call it, and they hold `batches` in shared mode.
create function gov_handoff.gov_candidate_seed(
    p_source text, o_key text[], o_kind text[], o_type text[], o_address text[], o_group text[], o_dims jsonb[],
    o_occurred timestamptz[])
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_seeded bigint;
begin
    execute $q$
        with fresh as materialized (
            select u.* from unnest($2, $3, $4, $5, $6, $7, $8) as u (key, kind, type, address, grp, dims, occurred)
             where not exists (select from public.gov_candidate_state c
                                where c.candidate_key = u.address
                                  and (c.born_key = $1 || ':' || u.key or c.source_name = $1 and c.source_key = u.key))
        ), groups as (
            select f.grp, min(f.dims::text)::jsonb as dims, max(f.occurred) as latest,
                   (array_agg(f.kind order by coalesce(f.occurred, '-infinity') desc, f.kind collate "C" desc))[1] as kind
              from fresh f group by f.grp
        ), g as (
            select array_agg(grp order by grp collate "C") as key, array_agg(dims order by grp collate "C") as dims,
                   array_agg(latest order by grp collate "C") as latest, array_agg(kind order by grp collate "C") as kind,
                   array_agg(0) as changes from groups
        ), o as (
            select array_agg(address) as address, array_agg(type) as type, array_agg(grp) as grp, array_agg($1) as source,
                   array_agg(key) as key, array_agg(kind) as kind, array_agg(occurred) as occurred,
                   count(distinct address) as n
              from fresh
        )
        select o.n from g, o, lateral (select gov_handoff.gov_marks_put(
                   p_ruleset => (select coalesce(max(case when k.value ~ '^[0-9]{1,9}$' then k.value::int end), 1)
                                   from public.dot_config k where k.key = 'governance.ruleset_version'),
                   g_key => g.key, g_dims => g.dims, g_latest => g.latest, g_kind => g.kind, g_count => g.changes,
                   o_address => o.address, o_type => o.type, o_group => o.grp, o_source => o.source, o_key => o.key,
                   o_kind => o.kind, o_occurred => o.occurred)) marked
         where o.n > 0
    $q$ into v_seeded using p_source, o_key, o_kind, o_type, o_address, o_group, o_dims, o_occurred;
    return coalesce(v_seeded, 0);
end
$$;

-- Whether the gates can work at all. It writes no row, but names each table and column that the gates write. So it tells
-- two causes of an error apart: a trigger that rejects one row, or a table that is gone. Nothing is written, so there is
-- no fence.
create function gov_handoff.gov_handoff_probe()
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
        event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system, payload_classification,
        safe_payload, occurred_at)
    select o.id, o.event_domain, o.event_type, o.event_stream, o.event_severity, o.delivery_lane, o.event_subject_table,
           o.event_subject_ref, o.canonical_address, o.actor_ref, o.source_system, o.payload_classification,
           o.safe_payload, o.occurred_at
      from public.event_outbox o where false
    on conflict (event_domain, event_type, event_subject_table, event_subject_ref)
        where event_subject_ref is not null do nothing;
    insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
        capture_payload, last_error)
    select p.id, p.event_domain, p.event_type_hint, p.entity_table, p.entity_ref, p.canonical_address, p.actor_ref,
           p.capture_payload, p.last_error
      from public.event_pending p where false
    on conflict (id) do nothing;
    insert into public.gov_candidate_group (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at, last_kind)
    select g.group_key, g.dims, g.dirty_reason, g.dirtied_at, g.changes, g.last_occurred_at, g.last_kind
      from public.gov_candidate_group g where false
    on conflict (group_key) do nothing;
    insert into public.gov_candidate_state (candidate_key, ruleset_version, object_type, group_key, group_mark, dirty_reason,
        dirtied_at, last_occurred_at, last_kind, source_name, source_key, born_key, key_conflict, retired)
    select c.candidate_key, c.ruleset_version, c.object_type, c.group_key, c.group_mark, c.dirty_reason, c.dirtied_at,
           c.last_occurred_at, c.last_kind, c.source_name, c.source_key, c.born_key, c.key_conflict, c.retired
      from public.gov_candidate_state c where false
    on conflict (candidate_key) do nothing;
    insert into public.gov_invalidation (scope, kind, ruleset_version, source_name, source_key)
    select i.scope, i.kind, i.ruleset_version, i.source_name, i.source_key from public.gov_invalidation i where false;
    update public.gov_worker_cursor set last_watermark_id = last_watermark_id where false;
    update public.gov_stream_position set durable_lsn = durable_lsn where false;
    update public.queue_heartbeat set last_tick_at = last_tick_at where false;
    perform t.active, c.value from public.event_type_registry t, public.dot_config c where false;
end
$$;
