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

-- Step 3 of a batch: marks the groups and objects of new signals, and raises the ruleset version where a rule says so.
create function gov_handoff.gov_handoff_mark(
    p_new uuid[], p_ruleset int, r_kind text[], r_bumps boolean[], s_id uuid[], s_rule int[], s_flag smallint[],
    s_object boolean[], s_object_type text[], s_address text[], s_group text[], s_occurred timestamptz[],
    s_scope jsonb[], g_key text[], g_dims jsonb[], g_latest timestamptz[], g_reason text[], g_count int[])
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

    -- Marks come last among the effects: batches share these rows, so their locks should be held for the shortest
    -- time.
    if cardinality(p_new) = cardinality(s_id) then
        with groups as (
            insert into public.gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes,
                last_occurred_at)
            select g.key, g.dims, g.reason, now(), g.changes, g.latest
              from unnest(g_key, g_dims, g_reason, g_count, g_latest) as g (key, dims, reason, changes, latest)
            on conflict (group_key) do update
                set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                    generation = c.generation + 1, changes = c.changes + excluded.changes,
                    last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at)
        )
        insert into public.gov_candidate_state as c (candidate_key, ruleset_version, object_type, group_key,
            dirty_reason, dirtied_at, last_occurred_at)
        select s.address, p_ruleset, s.object_type, s.grp, r_kind[s.rule], now(), s.occurred
          from unnest(s_object, s_rule, s_object_type, s_address, s_group, s_occurred)
               as s (object, rule, object_type, address, grp, occurred)
         where s.object
         order by s.address collate "C"
        on conflict (candidate_key, ruleset_version) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, group_key = excluded.group_key,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at);
    else
        perform gov_handoff.gov_handoff_mark_new(p_new => p_new, p_ruleset => p_ruleset, r_kind => r_kind, s_id => s_id,
            s_rule => s_rule, s_flag => s_flag, s_object => s_object, s_object_type => s_object_type,
            s_address => s_address, s_group => s_group, s_occurred => s_occurred, g_key => g_key, g_dims => g_dims);
    end if;

    if cardinality(array_remove(s_scope, null)) > 0 then
        execute 'update public.gov_candidate_group g
                    set dirty = true, dirty_reason = x.kind, dirtied_at = now(), generation = g.generation + 1
                   from (select distinct on (s.scope) s.scope, ($3)[s.rule] as kind
                           from unnest($1, $2, $4, $5) as s (id, rule, flag, scope)
                          where s.scope is not null and s.flag = 0 and s.id in (select unnest($6))) x
                  where g.dims @> x.scope'
          using s_id, s_rule, r_kind, s_flag, s_scope, p_new;
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
--   3. mark groups and objects, for new signals only;
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
    v_keep boolean[];
    v_out uuid[];
    v_captured uuid[];
    v_emitted_n int := 0;
    v_reopened_n bigint := 0;
    v_new uuid[];
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
    end if;
    -- Held in shared mode until the commit: no gate changes a type or a definition, or retires a signal, while this batch
    -- runs.
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(d_version);
    if cardinality(s_id) > 0 then
        select array_agg(coalesce(t.active, false) order by k.n), coalesce(bool_or(t.active), false),
               array_agg(regexp_replace(k.kind, '^governance\.handoff\.', '') order by k.n),
               (select exists (select from public.event_pending)),
               (select exists (select from public.gov_retired_range) or exists (select from public.gov_retired_signal)),
               (select exists (select from public.gov_reused_key)),
               -- A value that is not a number must not make every row a poison row. The watchdog raises a finding about
               -- it.
               (select coalesce(max(case when value ~ '^[0-9]{1,9}$' then value::int end), 1)
                  from public.dot_config where key = 'governance.ruleset_version')
          into v_active, v_any_active, v_change, v_pending, v_retired, v_reused, v_ruleset
          from unnest(r_kind) with ordinality as k (kind, n)
          left join public.event_type_registry t on t.event_domain = 'governance' and t.event_type = k.kind;

        -- A retired signal was recorded, certified and removed. It is not recorded again, whichever path brings its row
        -- again. Two more kinds of signal are left out: one whose key another row had before, and one under whose
        -- identity a capture of another row waits. The pass that notices the reused key gives such a signal an identity
        -- of its own. If this gate recorded it too, it would be there twice.
        if v_retired or v_pending or v_reused then
            select array_agg(not (v_retired and (
                                 exists (select from public.gov_retired_signal r where r.id = s.id)
                                 or exists (select from public.gov_retired_range r
                                             where r.source_name = r_source[s.rule] and s.number between r.lo and r.hi)))
                             and not (v_reused and exists (select from public.gov_reused_key k where k.subject = s.ref))
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
                p_new => v_new, p_ruleset => v_ruleset, r_kind => r_kind, r_bumps => r_bumps, s_id => s_id,
                s_rule => s_rule, s_flag => s_flag, s_object => s_object, s_object_type => s_object_type,
                s_address => s_address, s_group => s_group, s_occurred => s_occurred, s_scope => s_scope,
                g_key => g_key, g_dims => g_dims, g_latest => g_latest, g_reason => g_reason, g_count => g_count);
        end if;
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
    v_current boolean;
    v_ruleset int;
    v_emitted bigint;
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
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
           exists (select from public.gov_source_version v where v.version = d_version)
      into v_active, v_pending, v_ruleset, v_retired, v_current
      from public.event_type_registry t where t.event_domain = 'governance' and t.event_type = r_kind;
    if v_active is not true then
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
         where not v_retired
        on conflict do nothing
        returning 1
    ), groups as (
        insert into public.gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at)
        -- A signal that was captured while its type was inactive, and is emitted now, was recorded before: it marks
        -- nothing again.
        select s_group, g_dims, r_kind, now(), 1, s_occurred from recorded where not v_pending
        on conflict (group_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, changes = c.changes + excluded.changes,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at)
    ), objects as (
        insert into public.gov_candidate_state as c (candidate_key, ruleset_version, object_type, group_key,
            dirty_reason, dirtied_at, last_occurred_at)
        select s_address, v_ruleset, s_object_type, s_group, r_kind, now(), s_occurred
          from recorded where s_object and not v_pending
        on conflict (candidate_key, ruleset_version) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, group_key = excluded.group_key,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at)
    )
    select count(*) into v_emitted from recorded;
    if v_emitted = 0 and not v_retired and not exists (select from public.event_outbox o where o.id = s_id) then
        raise exception 'another event stands for the subject of a signal' using errcode = 'unique_violation';
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

-- The same marks when only a part of the batch was new. EXECUTE plans them again each time, because they need a join.
create function gov_handoff.gov_handoff_mark_new(
    p_new uuid[], p_ruleset int, r_kind text[], s_id uuid[], s_rule int[], s_flag smallint[], s_object boolean[],
    s_object_type text[], s_address text[], s_group text[], s_occurred timestamptz[], g_key text[], g_dims jsonb[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    execute $q$
        insert into public.gov_candidate_state as c (candidate_key, ruleset_version, object_type, group_key, dirty_reason,
            dirtied_at, last_occurred_at)
        select distinct on (s.address collate "C") s.address, $2, s.object_type, s.grp, ($3)[s.rule], now(), s.occurred
          from unnest($4, $5, $6, $7, $8, $9, $10, $11)
               as s (id, rule, flag, object, object_type, address, grp, occurred)
         -- Every new signal counts here, not only the one that stands for its object: that one may have been recorded
         -- before.
         where s.flag = 0 and s.object is not null and s.id in (select unnest($1))
         order by s.address collate "C", s.occurred desc nulls last
        on conflict (candidate_key, ruleset_version) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, group_key = excluded.group_key,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at)
    $q$ using p_new, p_ruleset, r_kind, s_id, s_rule, s_flag, s_object, s_object_type, s_address, s_group, s_occurred;
    execute $q$
        insert into public.gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at)
        select s.grp, min(g.dims::text)::jsonb, max(($2)[s.rule]), now(), count(*), max(s.occurred)
          from unnest($3, $4, $5, $6, $7) as s (id, rule, flag, grp, occurred)
          join unnest($8, $9) as g (key, dims) on g.key = s.grp
         where s.flag = 0 and s.id in (select unnest($1))
         group by s.grp
         order by s.grp collate "C"
        on conflict (group_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, changes = c.changes + excluded.changes,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at)
    $q$ using p_new, r_kind, s_id, s_rule, s_flag, s_group, s_occurred, g_key, g_dims;
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
    insert into public.gov_candidate_group (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at)
    select g.group_key, g.dims, g.dirty_reason, g.dirtied_at, g.changes, g.last_occurred_at
      from public.gov_candidate_group g where false
    on conflict (group_key) do nothing;
    insert into public.gov_candidate_state (candidate_key, ruleset_version, object_type, group_key, dirty_reason, dirtied_at,
        last_occurred_at)
    select c.candidate_key, c.ruleset_version, c.object_type, c.group_key, c.dirty_reason, c.dirtied_at, c.last_occurred_at
      from public.gov_candidate_state c where false
    on conflict (candidate_key, ruleset_version) do nothing;
    update public.gov_worker_cursor set last_watermark_id = last_watermark_id where false;
    update public.gov_stream_position set durable_lsn = durable_lsn where false;
    update public.queue_heartbeat set last_tick_at = last_tick_at where false;
    perform t.active, c.value from public.event_type_registry t, public.dot_config c where false;
end
$$;
