-- Sources and how far each is read: event types, definitions, open id ranges, the stream's position, the frontier.

-- The lock of all batches, alone --------------------------------------------------------------------------------

-- For a gate that no batch may overlap. Every batch waits for this transaction, and also for a session that waits for
-- this lock. So a wait for a lock is bounded for the rest of the transaction, whatever the gate waits for next. The server
-- ends a session that idles in the transaction: an operator who called the gate in psql and went away must not stop the
-- intake. A caller with shorter timeouts keeps them.
create function gov_handoff.gov_batches_alone()
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config(b.name, '5s', true)
       from unnest(array['lock_timeout', 'idle_in_transaction_session_timeout']) as b (name)
      where current_setting(b.name) = '0' or current_setting(b.name)::interval > interval '5 seconds';
    lock table gov_handoff.batches in access exclusive mode;
end
$$;
comment on function gov_handoff.gov_batches_alone() is 'takes the lock of all batches alone; bounds how long the transaction may wait or idle';

-- Types ------------------------------------------------------------------------------------------------------------

-- The exclusive lock waits for every batch that still sees the old state of the type, so that its captures are there to
-- be drained. One type of the domain `system` is ours as well: queue_worker_silent. A type of another domain is named with
-- its domain, as in `iu/draft_created`.
create function gov_handoff.gov_type_set_active(p_type text, p_active boolean)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_domain constant text := case when p_type = 'queue_worker_silent' then 'system'
                                   when p_type ~ '/' then split_part(p_type, '/', 1) else 'governance' end;
    v_type constant text := regexp_replace(p_type, '^[^/]*/', '');
begin
    perform gov_handoff.gov_batches_alone();
    update public.event_type_registry set active = p_active
     where event_domain = v_domain and event_type = v_type and active is distinct from p_active;
    if found then
        perform gov_handoff.gov_finding_resolve(k.key, 'activated')
           from unnest(array['handoff_unregistered_type:' || p_type, 'handoff_unregistered_type:' || v_domain || '/' || v_type]) as k (key)
          where p_active;
        return true;
    end if;
    if not exists (select from public.event_type_registry where event_domain = v_domain and event_type = v_type) then
        raise exception 'event type % is not registered', p_type using errcode = 'GH003',
            hint = 'gov-handoff types list shows the registered ones';
    end if;
    return false;
end
$$;

-- For a captured signal that the outbox rejects. The capture stays, so that its groups are not marked again, and its
-- error says why. Its row is also staged: the retry lane reads the row again from its source and finally makes a dead
-- letter of it. Nothing else is held up.
create function gov_handoff.gov_handoff_drain_refused(p_id uuid, p_error text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
        capture_payload, error_count, last_error)
    select gov_handoff.gov_handoff_identity(p.capture_payload ->> 'source', coalesce(c.id_type, 'text'),
               p.capture_payload ->> 'source_key', 'governance.handoff.retry'),
           'governance', 'governance.handoff.retry', p.entity_table, p.entity_ref, left(p.canonical_address, 300),
           left(p.actor_ref, 300),
           jsonb_build_object('source', p.capture_payload ->> 'source', 'source_key', p.capture_payload ->> 'source_key',
                              'canonical_address', left(p.canonical_address, 300)),
           1, p_error
      from public.event_pending p
      left join lateral (select min(w.metadata #>> '{id,type}') as id_type from public.gov_worker_cursor w
                          where w.source_name = p.capture_payload ->> 'source' and w.metadata ? 'id') c on true
     where p.id = p_id
    on conflict (id) do nothing;
    update public.event_pending set last_error = 'refused_by_outbox', error_count = error_count + 1 where id = p_id;
end
$$;

-- Moves these captures to the outbox and returns how many the outbox rejected. A rejected batch is halved until each
-- rejected capture stands alone. An error about the session, the server or the lease is not the fault of a row and ends
-- the drain, as in the table of src/error.rs. So does an error that means that no gate can work.
create function gov_handoff.gov_handoff_drain_some(p_ids uuid[])
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_state text;
    v_constraint text;
    v_moved uuid[];
    v_half int := cardinality(p_ids) / 2;
begin
    begin
        with moved as (
            insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system,
                payload_classification, safe_payload, occurred_at)
            select p.id, 'governance', p.event_type_hint, p.capture_payload ->> 'event_stream',
                   p.capture_payload ->> 'event_severity', 'immediate', p.entity_table, p.entity_ref::uuid,
                   p.canonical_address, p.actor_ref, p.capture_payload ->> 'source_system', 'safe_metadata',
                   p.capture_payload - 'event_stream' - 'event_severity',
                   coalesce((p.capture_payload ->> 'occurred_at')::timestamptz, now())
              from public.event_pending p where p.id = any (p_ids)
            on conflict do nothing
            returning id
        )
        select array_agg(m.id) into v_moved from moved m;
        perform gov_handoff.gov_feed_note(v_moved) where v_moved is not null;
        -- As in gov_handoff_apply: a signal that is not there under its own id is not recorded.
        if exists (select from unnest(p_ids) as u (id)
                    where not exists (select from public.event_outbox o where o.id = u.id)) then
            raise exception 'another event stands for the subject of a signal' using errcode = 'unique_violation';
        end if;
        update public.event_pending p set processed_at = clock_timestamp() where p.id = any (p_ids);
        return 0;
    exception when others then
        get stacked diagnostics v_state = returned_sqlstate, v_constraint = constraint_name;
        if left(v_state, 2) in ('08', '25', '26', '28', '3D', '40', '53', '55', '57', '58', '72', 'F0', 'GH')
           or v_state in ('42501', 'HV00N', 'XX001', 'XX002') then
            raise;
        end if;
    end;
    if left(v_state, 2) in ('42', 'XX') then
        perform gov_handoff.gov_handoff_probe();
    end if;
    if v_half > 0 then
        return gov_handoff.gov_handoff_drain_some(p_ids[:v_half]) + gov_handoff.gov_handoff_drain_some(p_ids[v_half + 1:]);
    end if;
    perform gov_handoff.gov_handoff_drain_refused(p_ids[1], format('refused by the database (%s%s)', v_state,
        case when v_constraint <> '' then ', constraint ' || v_constraint else '' end));
    return 1;
end
$$;

-- Moves up to p_limit captures of an active type to the outbox, under the identities that they were captured with.
-- Returns how many were moved and how many the outbox rejected. It marks nothing, because the groups were marked at the
-- capture. The daemon drains under its lease; like every effect of the daemon it is fenced, last. Without a lease, the
-- caller is an operator.
create function gov_handoff.gov_handoff_drain(p_worker text, p_owner text, p_term bigint, p_type text, p_limit int)
returns table (moved bigint, refused bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
    v_refused bigint;
begin
    perform gov_handoff.gov_lease_or_operator(p_owner);
    moved := 0;
    refused := 0;
    perform from gov_handoff.batches;
    if exists (select from public.event_type_registry where event_domain = 'governance' and event_type = p_type and active) then
        select array_agg(d.id) into v_ids
          from (select p.id from public.event_pending p
                 where p.event_domain = 'governance' and p.event_type_hint = p_type and p.processed_at is null
                   and p.last_error is null and (p.capture_payload ? 'event') is not true
                 order by p.id limit p_limit for update skip locked) d;
        if v_ids is not null then
            refused := gov_handoff.gov_handoff_drain_some(v_ids);
            moved := cardinality(v_ids) - refused;
        end if;
    end if;
    -- Events of any domain that a producer emitted (0018), under the ids that they were captured with.
    if moved + refused < p_limit then
        select array_agg(d.id) into v_ids
          from (select p.id from public.event_pending p
                  join public.event_type_registry t on t.event_domain = p.event_domain and t.event_type = p.event_type_hint and t.active
                 where p.event_type_hint = regexp_replace(p_type, '^[^/]*/', '') and p.processed_at is null and p.last_error is null
                   and p.capture_payload ? 'event'
                 order by p.id limit p_limit - moved - refused for update of p skip locked) d;
        if v_ids is not null then
            v_refused := gov_handoff.gov_event_release_some(v_ids);
            refused := refused + v_refused;
            moved := moved + cardinality(v_ids) - v_refused;
        end if;
    end if;
    if p_owner is not null then
        perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    end if;
    return next;
end
$$;

-- Sources ----------------------------------------------------------------------------------------------------------

-- Binds a source's name to its table, or refuses; see gov_source_table.
create function gov_handoff.gov_source_bind(p_source text, p_definition jsonb)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_schema constant text := coalesce(p_definition ->> 'schema', 'public');
    v_table constant text := coalesce(p_definition ->> 'table', p_source);
    v_column constant text := p_definition #>> '{id,column}';
    v_family constant text := case when p_definition #>> '{id,type}' in ('int4', 'int8') then 'integer'
                                   else p_definition #>> '{id,type}' end;
    v_relation constant oid := (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                 where n.nspname = v_schema and c.relname = v_table);
    v_known public.gov_source_table;
    v_other text;
begin
    select * into v_known from public.gov_source_table where source_name = p_source;
    if v_known.source_name is not null
       and ((v_known.table_schema, v_known.table_name) <> (v_schema, v_table) and v_known.relation is distinct from v_relation
            or (v_known.id_column, v_known.id_family) <> (v_column, v_family)) then
        raise exception 'source % stands for %.% by its % key %, and not for %.% by its % key %: rows of the one would pass for rows of the other that were handed off',
            p_source, v_known.table_schema, v_known.table_name, v_known.id_family, v_known.id_column,
            v_schema, v_table, v_family, v_column
            using errcode = 'GH003', hint = 'register it as a source of another name; sources remove ends the reading of the old one';
    end if;
    select source_name into v_other from public.gov_source_table
     where source_name <> p_source
       and ((table_schema, table_name) = (v_schema, v_table) or relation = v_relation)
     limit 1;
    if v_other is not null then
        raise exception 'table %.% is source %, and as source % every row of it would be handed off again',
            v_schema, v_table, v_other, p_source
            using errcode = 'GH003', hint = format('keep the name %s for it; a name that never recorded anything is let go by sources remove', v_other);
    end if;
    insert into public.gov_source_table as b (source_name, table_schema, table_name, id_column, id_family, relation)
    values (p_source, v_schema, v_table, v_column, v_family, v_relation)
    on conflict (source_name) do update set table_schema = v_schema, table_name = v_table, relation = v_relation;
end
$$;

-- Opens the ids that a source's key can have and that were never seen, and closes the ids that the key cannot have.
--
-- A new source starts with every id of its type open. One exception are the ids of its backlog, unless it hands its
-- backlog off (0015). The other are keys whose signals were handed off, certified and then removed by retention (0008). They are not read again when a removed source is registered again. This holds for
-- keys that were retired whole, and for keys of which only some signals were retired, because the other signals are still
-- recorded. (Keys without ranges are looked up one by one, in gov_retired_signal.) When the type of a key was widened,
-- the ids that the old type could not hold are opened; p_was is the extent of the old type.
create function gov_handoff.gov_source_open(p_worker text, p_source text, p_is nummultirange, p_was nummultirange)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_open nummultirange;
begin
    -- Numeric ranges that exclude their upper end, for two reasons: the largest bigint has no successor, and ranges that
    -- touch are merged. The tail has to reach the end of the type.
    select coalesce((select range_agg(numrange(g.lo, g.hi::numeric + 1)) from public.gov_worker_gap g
                      where g.worker_name = p_worker and g.source_name = p_source), '{}')
           + (p_is - p_was
              - coalesce((select range_agg(numrange(t.lo, t.hi::numeric + 1))
                            from (select r.lo, r.hi from public.gov_retired_range r where r.source_name = p_source
                                   union all
                                  select s.number, s.number from public.gov_retired_signal s
                                   where s.source_name = p_source and s.number is not null
                                   union all
                                  select g.lo, g.hi from public.gov_source_boundary b
                                    join public.gov_backlog_range g on g.boundary = b.boundary
                                   where b.source_name = p_source and b.policy <> 'hand_off') t), '{}'))
      into v_open;
    v_open := v_open * p_is;
    delete from public.gov_worker_gap g
     where g.worker_name = p_worker and g.source_name = p_source
       and not exists (select from unnest(v_open) as r (part) where lower(r.part) = g.lo and upper(r.part) = g.hi::numeric + 1);
    insert into public.gov_worker_gap (worker_name, source_name, lo, hi)
    select p_worker, p_source, lower(r.part), upper(r.part) - 1 from unnest(v_open) as r (part)
    on conflict (worker_name, source_name, lo) do nothing;
end
$$;

-- By kind, what decides how a signal of that kind names its row: the template, and, if several rules have the kind, which
-- of them applies. A rule without a template names the row by its table.
create function gov_handoff.gov_source_mapping(p_definition jsonb)
returns jsonb language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(jsonb_object_agg(k.kind, jsonb_build_array(coalesce(p_definition ->> 'table', p_definition ->> 'name'), k.rules)), '{}')
      from (select r.rule ->> 'kind' as kind,
                   case when count(*) = 1 then jsonb_agg(r.rule -> 'object_ref')
                        else jsonb_agg(jsonb_build_array(r.rule -> 'object_ref', r.rule -> 'when') order by r.n) end as rules
              from jsonb_array_elements(p_definition -> 'rule') with ordinality as r (rule, n)
             group by 1) k
$$;

-- Another definition is in force from this commit on. A kind that is named as before keeps its old time. Otherwise a row
-- that took the key of another row could not be told from it once the source is redefined, or removed and registered
-- again.
create function gov_handoff.gov_source_renew(p_worker text, p_source text, p_definition jsonb)
returns void language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into public.gov_source_version as v (worker_name, source_name, version, named)
    select p_worker, p_source, gen_random_uuid(),
           coalesce(o.named, '{}') || coalesce((
               select jsonb_object_agg(m.key, jsonb_build_object('by', m.value, 'since', clock_timestamp()))
                 from jsonb_each(gov_handoff.gov_source_mapping(p_definition)) m
                where o.named -> m.key -> 'by' is distinct from m.value), '{}')
      from (select 1) one
      left join public.gov_source_version o on o.worker_name = p_worker and o.source_name = p_source
    on conflict (worker_name, source_name) do update set version = excluded.version, named = excluded.named
$$;

-- Registers or redefines a source. p_boundary: what becomes of its backlog, if this is its first registration (0015);
-- without it, the backlog is handed off. The lock on `batches` lets no batch run meanwhile. So no batch that was mapped by the
-- old definition commits after this returns.
create function gov_handoff.gov_source_put(p_worker text, p_source text, p_definition jsonb, p_lo bigint, p_hi bigint,
                                      p_boundary jsonb default null)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_old jsonb;
    v_was nummultirange := '{}';
begin
    select metadata into v_old from public.gov_worker_cursor where worker_name = p_worker and source_name = p_source;
    if v_old = p_definition then
        return 'unchanged';
    end if;
    -- One definition at a time: two sessions that register the same source would both find that there is none.
    perform gov_handoff.gov_batches_alone();
    lock table gov_handoff.definitions in access exclusive mode;
    perform gov_handoff.gov_source_bind(p_source, p_definition);
    if v_old #> '{id,type}' is distinct from p_definition #> '{id,type}' then
        -- Batches replace ranges exactly as they read them. This lock waits for the batches that are running, before this
        -- transaction holds anything that they need. So a batch either comes first, or reads the ranges that are left
        -- here.
        lock table public.gov_worker_gap in share row exclusive mode;
    end if;
    select metadata into v_old from public.gov_worker_cursor where worker_name = p_worker and source_name = p_source for update;
    if v_old is not null then
        update public.gov_worker_cursor set metadata = p_definition, updated_at = clock_timestamp()
         where worker_name = p_worker and source_name = p_source;
        v_was := case v_old #>> '{id,type}'
                 when 'int4' then '{[-2147483648, 2147483648)}' when 'int8' then '{[-9223372036854775808, 9223372036854775808)}'
                 else '{}' end::nummultirange;
    else
        insert into public.gov_worker_cursor (worker_name, source_name, metadata, phase)
        values (p_worker, p_source, p_definition, 'seeding');
    end if;
    perform gov_handoff.gov_source_renew(p_worker, p_source, p_definition);
    if v_old is null then
        perform gov_handoff.gov_source_bound(p_worker, p_source, p_boundary);
    end if;
    if p_lo is not null and v_old #> '{id,type}' is distinct from p_definition #> '{id,type}' then
        perform gov_handoff.gov_source_open(p_worker, p_source, nummultirange(numrange(p_lo, p_hi::numeric + 1)), v_was);
    end if;
    if v_old is null then
        -- Captures of untrusted producers still wait for their promotion, and the promotion goes by these findings.
        perform gov_handoff.gov_finding_raise('untrusted_source', i.coalesce_key, i.severity, i.detail)
           from public.system_issues i
          where i.issue_kind = 'untrusted_source' and i.detail ->> 'source' = p_source
            and i.resolution = 'the source is no longer registered';
        return 'added';
    end if;
    return 'changed';
end
$$;

create function gov_handoff.gov_source_remove(p_worker text, p_source text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_used boolean;
begin
    perform gov_handoff.gov_batches_alone();
    lock table gov_handoff.definitions in access exclusive mode;
    update public.gov_source_version set version = gen_random_uuid() where worker_name = p_worker and source_name = p_source;
    -- In the order in which a certifying pass writes these rows.
    delete from public.gov_worker_frontier where worker_name = p_worker and source_name = p_source;
    delete from public.gov_worker_gap where worker_name = p_worker and source_name = p_source;
    delete from public.gov_worker_cursor where worker_name = p_worker and source_name = p_source
    returning events_seen > 0 or attempts_written > 0 or dead_lettered > 0 into v_used;
    if v_used is null then
        return false;
    end if;
    -- A name that recorded anything, or put a backlog aside, stays bound to its table. Another worker may read the source
    -- as well.
    v_used := v_used or exists (select from public.gov_source_boundary b
                                 where b.source_name = p_source and b.policy <> 'hand_off' and b.row_count > 0);
    update public.gov_source_table set used = true where source_name = p_source and v_used and not used;
    delete from public.gov_source_version
     where worker_name = p_worker and source_name = p_source
       and not exists (select from public.gov_source_table b where b.source_name = p_source and b.used);
    delete from public.gov_source_table b
     where b.source_name = p_source and not b.used
       and not exists (select from public.gov_worker_cursor c where c.source_name = p_source and c.metadata ? 'id');
    delete from public.gov_source_boundary b
     where b.source_name = p_source
       and not exists (select from public.gov_source_table t where t.source_name = p_source);
    perform gov_handoff.gov_finding_orphans();
    return true;
end
$$;

-- Open ranges ------------------------------------------------------------------------------------------------------

-- Ranges are replaced only as they were read. If any of them changed since, nothing is written and the reader starts
-- over.
create function gov_handoff.gov_gap_replace(p_worker text, p_source text, p_closed_lo bigint[], p_closed_hi bigint[],
                                       p_open_lo bigint[], p_open_hi bigint[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
begin
    delete from public.gov_worker_gap g using unnest(p_closed_lo, p_closed_hi) as k (lo, hi)
     where g.worker_name = p_worker and g.source_name = p_source and g.lo = k.lo and g.hi = k.hi;
    get diagnostics v_n = row_count;
    if v_n <> cardinality(p_closed_lo) then
        raise exception 'the open id ranges of % were changed by another writer', p_source using errcode = 'GH002';
    end if;
    insert into public.gov_worker_gap (worker_name, source_name, lo, hi)
    select p_worker, p_source, k.lo, k.hi from unnest(p_open_lo, p_open_hi) as k (lo, hi);
end
$$;

-- A range goes cold when no transaction is left that could still fill it. It stays open and is read by the slower passes.
create function gov_handoff.gov_gap_cool(p_worker text, p_owner text, p_term bigint, p_source text, p_opened_before timestamptz)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
begin
    update public.gov_worker_gap set hot = false
     where worker_name = p_worker and source_name = p_source and hot and opened_at < p_opened_before
       -- The tail is never cold.
       and hi < (select max(t.hi) from public.gov_worker_gap t where t.worker_name = p_worker and t.source_name = p_source);
    get diagnostics v_n = row_count;
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    return v_n;
end
$$;

-- Stream position and frontier -------------------------------------------------------------------------------------

-- Binds a slot to the server it was made on. Moving back, or to another server, happens only here, for a slot that starts
-- again.
create function gov_handoff.gov_stream_bind(p_worker text, p_owner text, p_term bigint, p_slot text, p_system text,
                                       p_timeline int, p_lsn pg_lsn)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    insert into public.gov_stream_position (slot_name, system_identifier, timeline, durable_lsn)
    values (p_slot, p_system, p_timeline, p_lsn)
    on conflict (slot_name) do update set system_identifier = p_system, timeline = p_timeline, durable_lsn = p_lsn,
        updated_at = clock_timestamp();
end
$$;

create function gov_handoff.gov_stream_confirm(p_worker text, p_owner text, p_term bigint, p_slot text, p_lsn pg_lsn)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The lease first, as in the gates that apply a batch: all transactions take these locks in one order.
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    update public.gov_stream_position set durable_lsn = p_lsn, updated_at = clock_timestamp()
     where slot_name = p_slot and durable_lsn < p_lsn;
end
$$;

-- Every rolled-back insert uses up ids, and each stretch of them would stay an open range indefinitely. Above a limit
-- (`dot_config`, `governance.holes.kept`) ranges are closed and left to the frontier. The number of their ids is kept,
-- because rows are counted against the ids that left the ranges.
create function gov_handoff.gov_frontier_advance(p_worker text, p_owner text, p_term bigint, p_source text, p_frontier xid8,
                                            p_system text, p_lsn pg_lsn, p_relation oid, p_filenode oid, p_version uuid)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    -- One row for each range. A pass over ten thousand of them costs fifty milliseconds.
    v_kept bigint := gov_handoff.gov_config_number('governance.holes.kept', 10000, 0, 1000000);
    v_away numeric;
begin
    -- The frontier says that every row below it was handed off by the definition that is in force, and by no other.
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(array[p_version]);
    insert into public.gov_worker_frontier as f (worker_name, source_name, frontier, system_identifier, certified_lsn, relation, filenode)
    values (p_worker, p_source, p_frontier, p_system, p_lsn, p_relation, p_filenode)
    on conflict (worker_name, source_name) do update
        set frontier = p_frontier, system_identifier = p_system, certified_lsn = p_lsn, relation = p_relation,
            filenode = p_filenode, certified_at = clock_timestamp()
        -- A frontier of this server never goes back: the rows in between were read under the later one. A frontier that
        -- no transaction has reached yet did not come from a snapshot of this server, and must not block the real one
        -- indefinitely.
        where f.system_identifier <> p_system or f.frontier < p_frontier
           or f.frontier > pg_snapshot_xmax(pg_current_snapshot())
           -- Another table under the same frontier was compared in full. It is noted, so that the comparison is not
           -- repeated while an old transaction holds the frontier back.
           or f.frontier = p_frontier and (f.relation, f.filenode) is distinct from (p_relation, p_filenode);
    -- A row that is in no open range and was not handed off was written by a transaction at or after the frontier. The
    -- next certifying pass selects such a row by its transaction, not by its id. So ids that seem to be unused may leave
    -- the ranges as soon as there is a frontier; their rows are then found at the cadence of certifying passes. The
    -- lowest range stays, because lower ids may still appear in it, and so do all hot ranges.
    with gone as (
        delete from public.gov_worker_gap g
         using (select c.lo from public.gov_worker_gap c
                 where c.worker_name = p_worker and c.source_name = p_source and not c.hot
                   and c.lo > (select min(m.lo) from public.gov_worker_gap m
                                where m.worker_name = p_worker and m.source_name = p_source)
                 order by c.lo
                 limit (select greatest(count(*) - v_kept, 0) from public.gov_worker_gap n
                         where n.worker_name = p_worker and n.source_name = p_source and not n.hot)) x
         where g.worker_name = p_worker and g.source_name = p_source and g.lo = x.lo
        returning g.hi::numeric - g.lo::numeric + 1 as ids
    )
    select sum(ids) into v_away from gone;
    if v_away is not null then
        update public.gov_worker_frontier set certified_away = certified_away + v_away
         where worker_name = p_worker and source_name = p_source;
    end if;
    -- Last, as everywhere: its row lock orders this commit against a takeover, and nothing but the commit follows it.
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
end
$$;
