-- Emitting events of any domain: the gate that every producer uses, the rules that it checks, and the captures that wait
-- for their type.
--
-- A refusal is an answer and not an exception, so that the finding about it is committed. Nobody has INSERT on the outbox;
-- its CHECKs still stop an owner who writes past the gate.

-- The role of producers: it emits and does nothing else. Roles belong to the cluster, as in 0007.
do $$
begin
    create role gov_handoff_producer nologin;
exception when duplicate_object or unique_violation then
    null;
end
$$;
grant usage on schema public to gov_handoff_producer;

-- The registry of event types may be a live table without a column for this.
create table public.event_type_lane (
    event_domain  text not null,
    event_type    text not null,
    delivery_lane text not null,
    primary key (event_domain, event_type),
    constraint event_type_lane_known check (delivery_lane = any ('{immediate, delayed}'))
);
comment on table public.event_type_lane is 'the lane of an event type where it is not the default of dot_config event.global.delivery_lane_default';

-- Rules ------------------------------------------------------------------------------------------------------------

-- What makes a payload more than a signal: one of the ten forbidden keys at any depth and in any spelling, a text of 10 KiB
-- or more, an array with more than p_numbers numbers. Returns NULL for a signal. A key is named, because it is from our
-- list; no other word of the payload is repeated.
create function gov_handoff.gov_payload_violation(p_payload jsonb, p_numbers int default 32)
returns text language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_length int;
    v_key text;
begin
    if p_payload = '{}' then
        return null;
    end if;
    v_length := octet_length(p_payload::text);
    select lower(k.key #>> '{}') into v_key
      from jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "object").keyvalue().key') as k (key)
     where lower(k.key #>> '{}') = any ('{body, content, raw, vector, embedding, secret, token, password, ssn, personal_data}')
     -- A vector is named first: it is the graver violation.
     order by lower(k.key #>> '{}') <> all ('{vector, embedding}')
     limit 1;
    if v_key is not null then
        return 'forbidden_key:' || v_key;
    end if;
    if v_length > 2 * p_numbers and exists (
        select from jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "array")') as a (list)
         where jsonb_array_length(a.list) > p_numbers
           and (select count(*) from jsonb_array_elements(a.list) as e (item) where jsonb_typeof(e.item) = 'number') > p_numbers) then
        return 'vector';
    end if;
    if v_length >= 10240 and exists (
        select from jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "string")') as s (word)
         where octet_length(s.word #>> '{}') >= 10240
        union all
        select from jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "object").keyvalue().key') as k (key)
         where octet_length(k.key #>> '{}') >= 10240) then
        return 'long_text';
    end if;
    return null;
end
$$;
comment on function gov_handoff.gov_payload_violation(jsonb, int) is 'why a payload is more than a signal, or NULL';

-- The same for an address. The intake checks its rows by the rule of core::payload: a value that looks like JSON is
-- searched, and sixteen numbers in a row are no address. A test holds the two against each other.
create function gov_handoff.gov_address_violation(p_address text)
returns text language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if octet_length(p_address) >= 10240 then
        return 'long_text';
    elsif p_address ~ '^\s*[\[{]' then
        return gov_handoff.gov_payload_violation(p_address::jsonb, 15);
    end if;
    return null;
exception when data_exception then
    return null;  -- not JSON after all, such as `[Draft] chapter 12`
end
$$;
comment on function gov_handoff.gov_address_violation(text) is 'why an address is more than an address, or NULL';

-- The text, or NULL if a client that speaks UTF-8 cannot be sent it. In a database of another encoding one such text would
-- end every statement that returns it, and so stand in the way of all that comes after it.
create function gov_handoff.gov_sent(p_text text)
returns text language plpgsql stable strict
set search_path = pg_catalog, pg_temp
as $$
begin
    perform convert_to(p_text, 'UTF8');
    return p_text;
exception when untranslatable_character or character_not_in_repertoire then
    return null;
end
$$;
comment on function gov_handoff.gov_sent(text) is 'the text, or NULL if it has a character without an equivalent in UTF-8';

-- As gov_sent; costs nothing in a database of UTF-8. Parsed when it is made, so it needs no search_path and is inlined.
create function gov_handoff.gov_sendable(p_text text)
returns text language sql stable
return case when getdatabaseencoding() = 'UTF8' then p_text else gov_handoff.gov_sent(p_text) end;
comment on function gov_handoff.gov_sendable(text) is 'the text, or NULL if it cannot be sent to a client that speaks UTF-8';

create function gov_handoff.gov_time_of(p_text text)
returns timestamptz language plpgsql stable strict
set search_path = pg_catalog, pg_temp
as $$
begin
    return p_text::timestamptz;
exception when data_exception then
    return null;
end
$$;
comment on function gov_handoff.gov_time_of(text) is 'a point in time, or NULL for text that is none';

-- The identity of an event without a subject: a version-7 UUID, so that the indexes grow at their right edge.
create function gov_handoff.gov_event_identity_new()
returns uuid language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
               placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;
comment on function gov_handoff.gov_event_identity_new() is 'the id of an event without a subject';

-- An adopted outbox may have no column for the cause of an event. Then there is no chain to follow, and doctor says so.
create function gov_handoff.gov_outbox_is_traced()
returns boolean language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from pg_attribute where attrelid = 'public.event_outbox'::regclass and attname = 'causation_id'
                      and not attisdropped)
$$;
comment on function gov_handoff.gov_outbox_is_traced() is 'whether event_outbox has the column causation_id';

-- The numbers of those items whose chain of causes has an event of the same type and subject, or is longer than 32. An
-- event that waits in event_pending is a link as well.
create function gov_handoff.gov_event_cycles(p_n int[], p_id uuid[], p_domain text[], p_type text[], p_table text[], p_ref uuid[],
                                        p_address text[], p_causation uuid[])
returns int[] language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_cyclic int[];
begin
    with recursive item as (
        select i.n, i.id, i.domain, i.type, i.tab, i.ref, i.address, i.causation
          from unnest(p_n, p_id, p_domain, p_type, p_table, p_ref, p_address, p_causation)
               as i (n, id, domain, type, tab, ref, address, causation)
         where i.causation is not null
    ), chain (n, depth, id, domain, type, tab, ref, address, causation) as (
        select i.n, 0, null::uuid, null::text, null::text, null::text, null::uuid, null::text, i.causation from item i
        union all
        select c.n, c.depth + 1, e.id, e.domain, e.type, e.tab, e.ref, e.address, e.causation
          from chain c
         cross join lateral (
               select o.id, o.event_domain::text as domain, o.event_type::text as type, o.event_subject_table::text as tab,
                      o.event_subject_ref as ref, o.canonical_address::text as address, o.causation_id as causation
                 from public.event_outbox o where o.id = c.causation
               union all
               select p.id, p.event_domain::text, p.capture_payload #>> '{event,type}', p.entity_table::text, p.entity_ref::uuid,
                      p.canonical_address::text, (p.capture_payload #>> '{event,causation_id}')::uuid
                 from public.event_pending p
                where p.id = c.causation and p.processed_at is null and p.capture_payload ? 'event') e
         where c.causation is not null and c.depth < 32
    )
    select array_agg(distinct i.n) into v_cyclic
      from item i join chain c on c.n = i.n
     where i.causation = i.id
        or c.depth = 32 and c.causation is not null
        or c.domain = i.domain and c.type = i.type and c.tab is not distinct from i.tab
           and case when i.ref is null then c.ref is null and c.address = i.address else c.ref = i.ref end;
    return coalesce(v_cyclic, '{}');
end
$$;
comment on function gov_handoff.gov_event_cycles(int[], uuid[], text[], text[], text[], uuid[], text[], uuid[])
    is 'items whose chain of causes has an event of the same type and subject';

-- Findings that a user's transaction raises: about emitters, producers and jobs. Such a transaction may stay open, and
-- holds what it locked. So a finding that another session is raising is left to that session. The row may be there and
-- locked, or not be committed yet; the second case is only noticed by waiting, which the timeout bounds.
create function gov_handoff.gov_emit_finding(p_kind text, p_key text, p_severity text, p_detail jsonb)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
    if exists (select from public.system_issues i where i.coalesce_key = p_key) then
        perform from public.system_issues i where i.coalesce_key = p_key for update skip locked;
        if not found then
            return;
        end if;
    end if;
    perform gov_handoff.gov_finding_sustain(p_kind, p_key, p_severity, p_detail, interval '1 minute');
exception when lock_not_available then
    null;
end
$$;
comment on function gov_handoff.gov_emit_finding(text, text, text, jsonb) is 'raises a finding in a user''s transaction without waiting for another session';

-- Emit -------------------------------------------------------------------------------------------------------------

-- Inserts events and leaves them for the feed. Returns the ids that are new.
create function gov_handoff.gov_event_insert(
    p_id uuid[], p_domain text[], p_type text[], p_stream text[], p_severity text[], p_lane text[], p_table text[], p_ref uuid[],
    p_address text[], p_actor text[], p_system text[], p_correlation text[], p_causation uuid[], p_payload jsonb[],
    p_occurred timestamptz[])
returns uuid[] language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_new uuid[];
begin
    if gov_handoff.gov_outbox_is_traced() then
        with said as (
            insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system, correlation_id, causation_id,
                payload_classification, safe_payload, occurred_at)
            select e.id, e.domain, e.type, e.stream, e.severity, e.lane, e.tab, e.ref, e.address, e.actor, e.system, e.correlation,
                   e.causation, 'safe_metadata', e.payload, e.occurred
              from unnest(p_id, p_domain, p_type, p_stream, p_severity, p_lane, p_table, p_ref, p_address, p_actor, p_system,
                          p_correlation, p_causation, p_payload, p_occurred)
                   as e (id, domain, type, stream, severity, lane, tab, ref, address, actor, system, correlation, causation, payload, occurred)
             -- In one order, so that two calls with the same events wait for each other and do not deadlock.
             order by e.id
            on conflict do nothing
            returning id
        )
        select array_agg(s.id) into v_new from said s;
    else
        with said as (
            insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, event_subject_ref, canonical_address, actor_ref, source_system, correlation_id,
                payload_classification, safe_payload, occurred_at)
            select e.id, e.domain, e.type, e.stream, e.severity, e.lane, e.tab, e.ref, e.address, e.actor, e.system, e.correlation,
                   'safe_metadata', e.payload, e.occurred
              from unnest(p_id, p_domain, p_type, p_stream, p_severity, p_lane, p_table, p_ref, p_address, p_actor, p_system,
                          p_correlation, p_payload, p_occurred)
                   as e (id, domain, type, stream, severity, lane, tab, ref, address, actor, system, correlation, payload, occurred)
             order by e.id
            on conflict do nothing
            returning id
        )
        select array_agg(s.id) into v_new from said s;
    end if;
    if v_new is not null then
        perform gov_handoff.gov_feed_note(v_new);
        -- Wakes the worker; losing it costs milliseconds. It takes a lock of the whole database at the commit, so it can be
        -- switched off. A transaction that notifies cannot be prepared, so where transactions can be, it has to be switched
        -- on.
        if coalesce((select c.value from public.dot_config c where c.key = 'event.feed.notify'),
                    case current_setting('max_prepared_transactions') when '0' then 'on' end) = 'on' then
            perform pg_notify('gov_event_feed', '');
        end if;
    end if;
    return coalesce(v_new, '{}');
end
$$;
comment on function gov_handoff.gov_event_insert(uuid[], text[], text[], text[], text[], text[], text[], uuid[], text[], text[], text[], text[], uuid[], jsonb[], timestamptz[])
    is 'inserts events into the outbox and leaves them for the feed';

-- Emits a list of events. Each item is an object with the keys domain, type, subject_table, subject_ref, address, actor,
-- source_system, payload, severity, occurred_at, correlation_id, causation_id, lane. One row for each item, in order:
--
--   emitted    it is in the outbox, with this id
--   known      the outbox has it already, under this id; nothing was written (003 §7)
--   captured   its type is not registered or not active; it waits in event_pending and is emitted under this id
--   delayed    it waits in the delayed lane, as a piece that may be rolled up
--   refused    nothing was written; `reason` says why
--
-- It locks no table of ours: a caller's transaction may stay open for hours. So an item may be captured while its type is
-- being activated; the drain looks again every few seconds.
create function public.fn_event_emit_many(p_events jsonb)
returns table (n int, outcome text, event_id uuid, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query select e.n, e.outcome, e.event_id, e.reason from gov_handoff.gov_event_emit(p_events, false) e;
end
$$;
comment on function public.fn_event_emit_many(jsonb) is 'emits a list of events; one row for each: emitted, known, captured, delayed, or refused and why';

-- The same. p_own: the caller is gov-handoff itself, with a roll-up or an escalation. Such an event follows from its subject and
-- is emitted once, so nobody else may emit it: its place would be taken, and the event would be taken for emitted.
create function gov_handoff.gov_event_emit(p_events jsonb, p_own boolean)
returns table (n int, outcome text, event_id uuid, reason text) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_n int[]; v_id uuid[]; v_domain text[]; v_type text[]; v_stream text[]; v_severity text[]; v_lane text[]; v_table text[];
    v_ref uuid[]; v_address text[]; v_actor text[]; v_system text[]; v_correlation text[]; v_causation uuid[]; v_payload jsonb[];
    v_occurred timestamptz[]; v_outcome text[]; v_reason text[];
    v_cyclic int[] := '{}';
    v_new uuid[];
    f record;
begin
    if jsonb_typeof(p_events) is distinct from 'array' then
        raise exception 'expected an array of events, found %', coalesce(jsonb_typeof(p_events), 'NULL') using errcode = 'GH003',
            hint = 'one event is an array of one object, or use fn_event_emit';
    end if;
    -- What each item says. A value of the wrong kind refuses its item, not the call.
    with item as materialized (
        select i.n::int as n, i.e, i.e ->> 'domain' as domain, i.e ->> 'type' as type, nullif(i.e ->> 'severity', '') as severity,
               nullif(i.e ->> 'lane', '') as lane, i.e ->> 'subject_table' as tab, i.e ->> 'subject_ref' as ref,
               i.e ->> 'address' as address, i.e ->> 'actor' as actor, i.e ->> 'source_system' as system,
               i.e ->> 'correlation_id' as correlation, i.e ->> 'causation_id' as causation,
               coalesce(nullif(i.e -> 'payload', 'null'), '{}') as payload, i.e ->> 'occurred_at' as occurred,
               gov_handoff.gov_time_of(i.e ->> 'occurred_at') as occurred_at
          from jsonb_array_elements(p_events) with ordinality as i (e, n)
    ), judged as materialized (
        select i.*,
               case when jsonb_typeof(i.e) <> 'object' then 'malformed: expected an object'
                    when getdatabaseencoding() <> 'UTF8' and gov_handoff.gov_sent(i.e::text) is null
                        then 'malformed: a character has no equivalent in UTF-8'
                    when i.domain = any ('{iu, piece, staging, birth_registry, governance, tac, kg, system, dot, health}') is not true
                        then 'malformed: domain is none of iu, piece, staging, birth_registry, governance, tac, kg, system, dot, health'
                    when btrim(coalesce(i.type, '')) = '' then 'malformed: type is missing'
                    when btrim(coalesce(i.address, '')) = '' then 'malformed: address is missing'
                    when btrim(coalesce(i.actor, '')) = '' then 'malformed: actor is missing'
                    when btrim(coalesce(i.system, '')) = '' then 'malformed: source_system is missing'
                    when i.severity <> all ('{info, warning, critical}') then 'malformed: severity is none of info, warning, critical'
                    when i.lane <> all ('{immediate, delayed}') then 'malformed: lane is none of immediate, delayed'
                    when i.ref !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'malformed: subject_ref is not a uuid'
                    when i.causation !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'malformed: causation_id is not a uuid'
                    when i.occurred is not null and i.occurred_at is null then 'malformed: occurred_at is not a time'
                    when jsonb_typeof(i.payload) <> 'object' then 'malformed: payload is not an object'
                    when greatest(length(i.type), length(i.tab), length(i.actor), length(i.system), length(i.correlation)) > 500
                        then 'malformed: type, subject_table, actor, source_system and correlation_id have at most 500 characters'
                    -- What only gov-handoff says: an event under the identity of a handoff would stand in its way.
                    when i.type like any ('{governance.handoff.%, governance.finding.%, governance.candidate.%, queue_worker_silent}')
                        then 'reserved: this type is gov-handoff''s own'
                    when not p_own and (i.tab = 'event_pending' and i.type = i.domain || '.rollup'
                                        or i.tab = 'event_outbox' and right(i.type, 8) = '_unacked')
                        then 'reserved: only gov-handoff says this about ' || i.tab
                    else 'payload: ' || coalesce(gov_handoff.gov_payload_violation(i.payload), gov_handoff.gov_address_violation(i.address))
               end as reason
          from item i
    ), identified as (
        select j.*, case when j.reason is null then j.ref::uuid end as subject, case when j.reason is null then j.causation::uuid end as cause,
               case when j.reason is not null then null
                    when j.ref is null then gov_handoff.gov_event_identity_new()
                    -- Deterministic, so that a capture, a piece in the delayed lane and the row in the outbox are one event. The
                    -- prefix keeps it apart from the identities of handoffs.
                    else gov_handoff.gov_handoff_identity('emit:' || j.domain || ':' || coalesce('=' || j.tab, ''), 'uuid',
                                                     j.ref::uuid::text, j.type) end as id
          from judged j
    )
    select array_agg(i.n order by i.n), array_agg(i.id order by i.n), array_agg(i.domain order by i.n), array_agg(i.type order by i.n),
           array_agg(coalesce(i.severity, to_jsonb(t) ->> 'event_severity') order by i.n), array_agg(t.event_stream::text order by i.n),
           array_agg(coalesce(i.lane, l.delivery_lane, g.lane, 'immediate') order by i.n), array_agg(i.tab order by i.n),
           array_agg(i.subject order by i.n), array_agg(i.address order by i.n), array_agg(i.actor order by i.n),
           array_agg(i.system order by i.n), array_agg(i.correlation order by i.n), array_agg(i.cause order by i.n),
           array_agg(i.payload order by i.n), array_agg(coalesce(i.occurred_at, now()) order by i.n), array_agg(i.reason order by i.n),
           array_agg(case when i.reason is not null then 'refused' when t.active is not true then 'captured'
                          when coalesce(i.lane, l.delivery_lane, g.lane) = 'delayed' then 'delayed' else 'emitted' end order by i.n)
      into v_n, v_id, v_domain, v_type, v_severity, v_stream, v_lane, v_table, v_ref, v_address, v_actor, v_system, v_correlation,
           v_causation, v_payload, v_occurred, v_reason, v_outcome
      from identified i
      left join public.event_type_registry t on t.event_domain = i.domain and t.event_type = i.type
      left join public.event_type_lane l on l.event_domain = i.domain and l.event_type = i.type
      left join (select min(c.value) as lane from public.dot_config c
                  where c.key = 'event.global.delivery_lane_default' and c.value = any ('{immediate, delayed}')) g on true;
    if v_n is null then
        return;
    end if;

    if cardinality(array_remove(v_causation, null)) > 0 and gov_handoff.gov_outbox_is_traced() then
        v_cyclic := gov_handoff.gov_event_cycles(v_n, v_id, v_domain, v_type, v_table, v_ref, v_address, v_causation);
    end if;

    -- What is there already, by id or by subject, and what comes twice in this call.
    select array_agg(case when u.cyclic then 'refused'
                          when u.outcome = 'refused' then u.outcome
                          when u.there is not null or u.waits = 'done' then 'known'
                          when u.waits is not null then u.waits
                          when u.outcome = 'emitted' and u.copy > 1 then 'known'
                          else u.outcome end order by u.n),
           array_agg(case when u.cyclic or u.outcome = 'refused' then null else coalesce(u.there, u.id) end order by u.n),
           array_agg(case when u.cyclic then 'cycle: its chain of causes has an event of this type and subject, or more than 32 events'
                          when u.outcome = 'captured' then case when u.stream is null then 'type is not registered'
                                                                else 'type is not active' end
                          else u.reason end order by u.n)
      into v_outcome, v_id, v_reason
      from (select s.n, s.id, s.outcome, s.reason, s.stream, s.n = any (v_cyclic) as cyclic,
                   row_number() over (partition by s.id order by s.n) as copy, o.id as there,
                   case when p.processed_at is not null then 'done' when p.last_error = 'delayed' then 'delayed'
                        when p.id is not null then 'captured' end as waits
              from unnest(v_n, v_id, v_outcome, v_reason, v_domain, v_type, v_stream, v_table, v_ref)
                   as s (n, id, outcome, reason, domain, type, stream, tab, ref)
              left join lateral (
                   select x.id from public.event_outbox x where x.id = s.id
                   union all
                   select x.id from public.event_outbox x
                    where x.event_domain = s.domain and x.event_type = s.type and x.event_subject_table = s.tab
                      and x.event_subject_ref = s.ref
                   limit 1) o on s.id is not null
              left join public.event_pending p on p.id = s.id) u;

    if 'emitted' = any (v_outcome) then
        select gov_handoff.gov_event_insert(array_agg(e.id), array_agg(e.domain), array_agg(e.type), array_agg(e.stream),
                   array_agg(e.severity), array_agg(e.lane), array_agg(e.tab), array_agg(e.ref), array_agg(e.address),
                   array_agg(e.actor), array_agg(e.system), array_agg(e.correlation), array_agg(e.causation), array_agg(e.payload),
                   array_agg(e.occurred))
          into v_new
          from unnest(v_n, v_id, v_outcome, v_domain, v_type, v_stream, v_severity, v_lane, v_table, v_ref, v_address, v_actor, v_system,
                      v_correlation, v_causation, v_payload, v_occurred)
               as e (n, id, outcome, domain, type, stream, severity, lane, tab, ref, address, actor, system, correlation, causation,
                     payload, occurred)
         where e.outcome = 'emitted';
    end if;
    if 'captured' = any (v_outcome) or 'delayed' = any (v_outcome) then
        insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
            capture_payload, last_error)
        select e.id, e.domain, case e.outcome when 'delayed' then 'event.delayed' else e.type end, e.tab, e.ref, e.address, e.actor,
               jsonb_build_object('payload', e.payload, 'event', jsonb_build_object('type', e.type, 'stream', e.stream,
                   'severity', e.severity, 'lane', e.lane, 'occurred_at', e.occurred, 'emitted_at', clock_timestamp(),
                   'causation_id', e.causation, 'correlation_id', e.correlation, 'source_system', e.system)),
               case e.outcome when 'delayed' then 'delayed' end
          from unnest(v_n, v_id, v_outcome, v_domain, v_type, v_stream, v_severity, v_lane, v_table, v_ref, v_address, v_actor, v_system,
                      v_correlation, v_causation, v_payload, v_occurred)
               as e (n, id, outcome, domain, type, stream, severity, lane, tab, ref, address, actor, system, correlation, causation,
                     payload, occurred)
         where e.outcome in ('captured', 'delayed')
         order by e.id
        on conflict (id) do nothing;
        if 'delayed' = any (v_outcome) then
            perform gov_handoff.gov_delayed_note(v_id);
        end if;
    end if;

    for f in
        select k.kind, x.domain, x.type, min(x.reason) as reason, count(*) as items, min(x.system) as system
          from unnest(v_outcome, v_reason, v_domain, v_type, v_system) as x (outcome, reason, domain, type, system)
         cross join lateral (
               select case when x.outcome = 'captured' then 'handoff_unregistered_type'
                           when x.reason ~ '^payload: (vector|forbidden_key:(vector|embedding))' then 'queue.nvsz_violation'
                           when x.reason ~ '^payload:' then 'queue.payload_violation'
                           when x.reason ~ '^(cycle|reserved):' then 'queue.emit_refused' end as kind) k
         where k.kind is not null
         group by 1, 2, 3
         order by 1, 2, 3
    loop
        perform gov_handoff.gov_emit_finding(f.kind, f.kind || ':' || f.domain || '/' || f.type,
            case f.kind when 'handoff_unregistered_type' then 'info' else 'warning' end,
            jsonb_build_object('event_domain', f.domain, 'event_type', f.type, 'source_system', f.system, 'rule', f.reason,
                               'items', f.items));
    end loop;

    -- An event that was emitted by another session a moment ago is known by now, perhaps under another id.
    return query
        select e.n, case when e.late then 'known' else e.outcome end,
               case when e.late then coalesce((select x.id from public.event_outbox x
                                                where x.event_domain = e.domain and x.event_type = e.type
                                                  and x.event_subject_table = e.tab and x.event_subject_ref = e.ref), e.id)
                    else e.id end,
               e.reason
          from (select u.*, u.outcome = 'emitted' and k.id is null as late
                  from unnest(v_n, v_outcome, v_id, v_reason, v_domain, v_type, v_table, v_ref)
                       as u (n, outcome, id, reason, domain, type, tab, ref)
                  left join unnest(v_new) as k (id) on k.id = u.id) e
         order by e.n;
end
$$;
comment on function gov_handoff.gov_event_emit(jsonb, boolean) is 'emits a list of events, also those that only gov-handoff may emit';

-- Emits one event and returns its id. NULL: it was refused; fn_event_emit_many says why, and so does the finding.
create function public.fn_event_emit(
    p_domain text, p_type text, p_subject_table text default null, p_subject_ref uuid default null, p_address text default null,
    p_actor text default null, p_source_system text default null, p_payload jsonb default null, p_severity text default null,
    p_occurred_at timestamptz default null, p_correlation_id text default null, p_causation_id uuid default null,
    p_lane text default null)
returns uuid language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select e.event_id from gov_handoff.gov_event_emit(jsonb_build_array(jsonb_build_object('domain', p_domain, 'type', p_type,
        'subject_table', p_subject_table, 'subject_ref', p_subject_ref, 'address', p_address, 'actor', p_actor,
        'source_system', p_source_system, 'payload', p_payload, 'severity', p_severity, 'occurred_at', p_occurred_at,
        'correlation_id', p_correlation_id, 'causation_id', p_causation_id, 'lane', p_lane)), false) e);
end
$$;
comment on function public.fn_event_emit(text, text, text, uuid, text, text, text, jsonb, text, timestamptz, text, uuid, text)
    is 'emits one event; its id, or NULL if it was refused';

-- Release ----------------------------------------------------------------------------------------------------------

-- Moves events that wait in event_pending to the outbox, under the ids that they waited with. The stream is the
-- registry's of now: a type that was not registered had none. Returns how many are recorded.
create function gov_handoff.gov_event_release(p_ids uuid[])
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
begin
    perform gov_handoff.gov_event_insert(array_agg(p.id), array_agg(p.event_domain::text), array_agg(v.event ->> 'type'),
            array_agg(coalesce(t.event_stream::text, v.event ->> 'stream')),
            array_agg(coalesce(v.event ->> 'severity', to_jsonb(t) ->> 'event_severity')), array_agg(coalesce(v.event ->> 'lane', 'immediate')),
            array_agg(p.entity_table::text), array_agg(p.entity_ref::uuid), array_agg(p.canonical_address::text),
            array_agg(p.actor_ref::text), array_agg(v.event ->> 'source_system'), array_agg(v.event ->> 'correlation_id'),
            array_agg((v.event ->> 'causation_id')::uuid), array_agg(p.capture_payload -> 'payload'),
            array_agg((v.event ->> 'occurred_at')::timestamptz))
       from public.event_pending p
      cross join lateral (select p.capture_payload -> 'event' as event) v
       left join public.event_type_registry t on t.event_domain = p.event_domain and t.event_type = v.event ->> 'type'
      where p.id = any (p_ids) and p.processed_at is null and p.capture_payload ? 'event'
     having count(*) > 0;
    -- An event that is in the outbox already, under another id because somebody inserted it directly, is recorded.
    update public.event_pending p set processed_at = clock_timestamp()
     where p.id = any (p_ids) and p.processed_at is null and p.capture_payload ? 'event';
    get diagnostics v_n = row_count;
    return v_n;
end
$$;
comment on function gov_handoff.gov_event_release(uuid[]) is 'moves events from event_pending to the outbox, under their ids';

-- As gov_event_release, for captures whose type is active by now. Those of the delayed lane go on waiting there. The
-- outbox of a live system may reject an event; then the others are released, and that one stays with a finding. Returns
-- how many were rejected.
create function gov_handoff.gov_event_release_some(p_ids uuid[])
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_half int := cardinality(p_ids) / 2;
    v_state text;
begin
    begin
        update public.event_pending p set event_type_hint = 'event.delayed', last_error = 'delayed'
         where p.id = any (p_ids) and p.processed_at is null and p.capture_payload #>> '{event,lane}' = 'delayed';
        perform gov_handoff.gov_delayed_note(p_ids);
        perform gov_handoff.gov_event_release(array(
            select p.id from public.event_pending p
             where p.id = any (p_ids) and p.processed_at is null and p.last_error is null));
        return 0;
    exception when integrity_constraint_violation or data_exception or raise_exception then
        get stacked diagnostics v_state = returned_sqlstate;
    end;
    if v_half > 0 then
        return gov_handoff.gov_event_release_some(p_ids[:v_half]) + gov_handoff.gov_event_release_some(p_ids[v_half + 1:]);
    end if;
    update public.event_pending p set last_error = 'refused_by_outbox', error_count = p.error_count + 1 where p.id = p_ids[1];
    perform gov_handoff.gov_finding_raise('queue.emit_refused', 'queue.emit_refused:' || p.event_domain || '/' || p.event_type_hint, 'high',
            jsonb_build_object('event_domain', p.event_domain, 'event_type', p.event_type_hint, 'sqlstate', v_state, 'event_id', p.id))
       from public.event_pending p where p.id = p_ids[1];
    return 1;
end
$$;
comment on function gov_handoff.gov_event_release_some(uuid[]) is 'releases captured events; those that the outbox rejects stay, with a finding';

-- Sets the lane that events of a type take when their producer names none.
create function gov_handoff.gov_type_set_lane(p_domain text, p_type text, p_lane text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into public.event_type_lane (event_domain, event_type, delivery_lane) values (p_domain, p_type, p_lane)
    on conflict (event_domain, event_type) do update set delivery_lane = excluded.delivery_lane
$$;
comment on function gov_handoff.gov_type_set_lane(text, text, text) is 'sets the lane of an event type';

-- The kind of finding that emit adds is an event type like the others (0012).
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.finding.' || k.kind, 'alert', false
  from unnest(array['feed_not_conserved', 'queue.emit_refused']) as k (kind)
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.finding.' || k.kind);

-- Privileges -------------------------------------------------------------------------------------------------------

do $$
declare
    f record;
begin
    for f in
        select p.oid::regprocedure as sig
          from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace
           and p.proname in ('gov_payload_violation', 'gov_address_violation', 'gov_sent', 'gov_sendable', 'gov_time_of', 'gov_event_identity_new',
               'gov_outbox_is_traced', 'gov_event_cycles', 'gov_emit_finding', 'gov_event_insert', 'gov_event_emit',
               'gov_event_release', 'gov_event_release_some', 'gov_type_set_lane')
            or p.pronamespace = 'public'::regnamespace and p.proname in ('fn_event_emit', 'fn_event_emit_many')
    loop
        execute format('alter function %s owner to gov_handoff_owner', f.sig);
        execute format('revoke all on function %s from public', f.sig);
    end loop;
end
$$;
grant select, insert, update on public.event_type_lane to gov_handoff_owner;
grant select on public.event_type_lane to gov_handoff_worker, gov_handoff_operator;
grant execute on function gov_handoff.gov_type_set_lane(text, text, text) to gov_handoff_operator;
grant execute on function public.fn_event_emit(text, text, text, uuid, text, text, text, jsonb, text, timestamptz, text, uuid, text),
    public.fn_event_emit_many(jsonb) to gov_handoff_producer, gov_handoff_operator;
