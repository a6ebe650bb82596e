-- Never silent: findings that are also events, the heartbeat, the watchdog, and views for observers.

-- Types ------------------------------------------------------------------------------------------------------------

-- Every kind of finding is an event type as well, inactive like the rest. A finding whose type is inactive is not
-- captured for later, unlike a handoff: it stands in system_issues whether it is announced or not.
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select t.domain, t.type, 'alert', false
  from (select 'governance', 'governance.finding.' || kind
          from unnest(array['handoff_lag', 'handoff_dlq', 'handoff_silent_gap', 'handoff_unregistered_type',
                   'handoff_missed', 'handoff_fallback', 'handoff_throttled', 'handoff_deferred', 'cursor_lag', 'cursor_dlq',
                   'cursor_silent_gap', 'cursor_lease_conflict', 'cursor_watermark_regression', 'group_invalidation_storm',
                   'slot_budget_exceeded', 'slot_lost', 'slot_unused', 'worker_paused', 'untrusted_source', 'queue.payload_violation', 'source_unreadable',
                   'source_not_conserved', 'source_not_append_only', 'audit_row_refused', 'handoff_dlq_overflow',
                   'queue.nvsz_violation', 'config_invalid', 'stream_unknown_relation', 'stream_column_mismatch',
                   'stream_malformed_row', 'row_replaced', 'worker_failing', 'audit_failed', 'audit_discrepancy', 'input_rejected']) as kind
        union all values ('system', 'queue_worker_silent')) as t (domain, type)
 where not exists (select from public.event_type_registry r where r.event_domain = t.domain and r.event_type = t.type);

-- Watermark --------------------------------------------------------------------------------------------------------

-- Keeps the watermark monotone, whichever session writes it. The gates of 0003 never move it back: a hole that is filled
-- late leaves it where it is. Any other write that would move it back (by hand, a restored row, a faulty gate) is
-- corrected before it is stored, and raises a finding. Every batch pays for this trigger, so it tests plain conditions,
-- the cheapest first. A WHEN clause would be parsed again for every batch.
create function gov_handoff.gov_watermark_hold()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if new.last_watermark_ts > old.last_watermark_ts
       or old.last_watermark_id is null
       or new.last_watermark_id is not distinct from old.last_watermark_id
          and new.last_watermark_ts is not distinct from old.last_watermark_ts
       -- The progress row of an audit has no definition, and starts over.
       or not old.metadata ? 'id'
       or gov_handoff.gov_watermark_ahead(new.last_watermark_ts, new.last_watermark_id, old.last_watermark_ts,
                                     old.last_watermark_id, old.metadata)
    then
        return new;
    end if;
    perform gov_handoff.gov_finding_raise('cursor_watermark_regression',
        'cursor_watermark_regression:' || old.worker_name || ':' || old.source_name, 'high',
        jsonb_build_object('worker', old.worker_name, 'source', old.source_name,
            'held_at', old.last_watermark_ts, 'held_id', old.last_watermark_id,
            'refused_at', new.last_watermark_ts, 'refused_id', new.last_watermark_id));
    new.last_watermark_ts := old.last_watermark_ts;
    new.last_watermark_id := old.last_watermark_id;
    return new;
end
$$;
create trigger gov_watermark_monotone
    before update of last_watermark_ts, last_watermark_id on public.gov_worker_cursor
    for each row execute function gov_handoff.gov_watermark_hold();

-- Heartbeat --------------------------------------------------------------------------------------------------------

-- A summary of the worker's work since the last heartbeat: rows seen, changes that were coalesced into a mark that
-- another change made anyway, signals enqueued, rows dead-lettered. The counters are in tables, so a restart loses none.
-- The update of the lease row is also the fence: a worker that lost its lease announces nothing.
create function gov_handoff.gov_heartbeat_emit(p_worker text, p_owner text, p_term bigint)
returns jsonb language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_total jsonb;
    v_last jsonb;
    v_event constant uuid := gen_random_uuid();
    v_beat jsonb;
begin
    select jsonb_build_object('seen', coalesce(sum(c.events_seen), 0), 'enqueued', coalesce(sum(c.attempts_written), 0),
               'dlq', coalesce(sum(c.dead_lettered), 0),
               -- Only the intake coalesces changes; the others need not read the groups for it.
               'coalesced', case when bool_or(c.metadata ? 'id')
                   then (select coalesce(sum(greatest(g.changes - g.generation, 0)), 0) from public.gov_candidate_group g) else 0 end)
      into v_total
      from public.gov_worker_cursor c where c.worker_name = p_worker;
    select coalesce(h.metadata #> '{beat,total}', '{}') into v_last from public.queue_heartbeat h where h.executor_name = p_worker;
    select jsonb_object_agg(t.key, greatest(t.value::text::numeric - coalesce((v_last ->> t.key)::numeric, 0), 0)) into v_beat
      from jsonb_each(v_total) t;
    update public.queue_heartbeat h
       set metadata = h.metadata || jsonb_build_object('beat',
               v_beat || jsonb_build_object('total', v_total, 'at', clock_timestamp()))
     where h.executor_name = p_worker and h.lease_owner = p_owner and (h.metadata ->> 'term')::bigint = p_term
       and h.last_tick_at > clock_timestamp() - (h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond';
    if not found then
        raise exception 'lease % is no longer held by % in term %', p_worker, p_owner, p_term using errcode = 'GH001';
    end if;
    -- Only if the type is active: a heartbeat that no operator asked for is not kept. If a live outbox rejects the
    -- event, the beat in the lease row must stand, because other instances watch that row.
    begin
        insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
            event_subject_table, canonical_address, actor_ref, source_system, payload_classification, safe_payload)
        select v_event, t.event_domain, t.event_type, 'health', 'info', 'immediate', 'queue_heartbeat',
               'worker:' || p_worker, p_owner, 'gov-handoff', 'safe_metadata', v_beat
          from public.event_type_registry t
         where t.event_domain = 'governance' and t.event_type = 'governance.handoff.heartbeat' and t.active;
        if found then
            perform gov_handoff.gov_feed_note(array[v_event]);
        end if;
    exception when others then
        raise warning 'the heartbeat of % was refused by the outbox (%)', p_worker, sqlstate;
    end;
    return v_beat;
end
$$;

-- Watchdog ---------------------------------------------------------------------------------------------------------

insert into public.dot_config (key, value)
select t.key, t.value
  from (values ('governance.watch.planned_stop', '5 minutes')) as t (key, value)
 where not exists (select from public.dot_config c where c.key = t.key);

-- A positive interval, as an operator writes it. An invalid value raises a finding and gives null: the caller has a
-- default, and one bad value must not end the watch over the other workers.
create function gov_handoff.gov_config_interval(p_key text, p_text text)
returns interval language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_interval interval;
begin
    begin
        v_interval := btrim(p_text)::interval;
    exception when others then
        v_interval := null;
    end;
    if p_text is null or v_interval > interval '0' then
        perform gov_handoff.gov_finding_resolve('config_invalid:' || p_key, 'the value can be used');
        return v_interval;
    end if;
    perform gov_handoff.gov_finding_raise('config_invalid', 'config_invalid:' || p_key, 'warning',
        jsonb_build_object('key', p_key, 'expected', 'an interval such as 30 seconds, or no such key to have the default'), true);
    return null;
end
$$;

-- The cadence of one worker; null if it is not watched. A worker declares its cadence itself, and the value may be
-- anything. If a foreign executor writes something that is not a number, that is a finding, and the other workers are
-- still watched.
create function gov_handoff.gov_watch_cadence(p_executor text, p_metadata jsonb)
returns interval language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_key text := 'governance.watch.cadence.' || p_executor;
    v_set text := (select c.value from public.dot_config c where c.key = v_key);
    v_said text := p_metadata ->> 'cadence_ms';
    v_cadence interval;
begin
    if btrim(v_set) = 'off' then
        return null;
    end if;
    v_cadence := gov_handoff.gov_config_interval(v_key, v_set);
    if v_cadence is not null or v_said is null then
        return v_cadence;
    end if;
    if v_said ~ '^[0-9]{1,12}([.][0-9]+)?$' then
        perform gov_handoff.gov_finding_resolve('config_invalid:queue_heartbeat:' || p_executor, 'the value can be used');
        return v_said::float8 * interval '1 millisecond';
    end if;
    perform gov_handoff.gov_finding_raise('config_invalid', 'config_invalid:queue_heartbeat:' || p_executor, 'warning',
        jsonb_build_object('executor', p_executor, 'key', 'metadata.cadence_ms', 'expected', 'milliseconds'), true);
    return null;
end
$$;

-- Findings about a source are resolved when the source is removed. Findings about its dead letters stay, because the
-- letters stay until an operator decides about them.
create function gov_handoff.gov_finding_orphans()
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    f record;
begin
    for f in
        select i.coalesce_key as key
          from public.system_issues i
         where i.issue_kind in ('cursor_lag', 'cursor_watermark_regression', 'source_unreadable', 'source_not_conserved',
                                'handoff_missed', 'handoff_throttled', 'untrusted_source', 'audit_row_refused',
                                'audit_failed', 'audit_discrepancy')
           and i.resolved_at is null and i.detail ? 'source'
           -- The progress row of an audit has the source's name too, but no definition.
           and not exists (select from public.gov_worker_cursor c
                            where c.source_name = i.detail ->> 'source' and c.metadata ? 'id'
                              and c.worker_name = coalesce(i.detail ->> 'worker', c.worker_name))
    loop
        perform gov_handoff.gov_finding_resolve(f.key, 'the source is no longer registered');
    end loop;
end
$$;

-- The watchdog: which workers are silent. For any scheduler, for standbys and for `gov-handoff watch`. p_now is for tests
-- and for looking back.
--
-- A worker's cadence is the value in dot_config (`governance.watch.cadence.<executor>`, an interval, or `off`), else what
-- the worker declares in queue_heartbeat.metadata. A worker without a cadence is not watched: a tool that runs once is
-- not silent afterwards. A worker ticks at its cadence whether there is work or not, so quiet is not silence.
--
-- A worker that is silent for more than three times its cadence is a warning, for more than ten times critical. A worker
-- that resigned was stopped on purpose, but nothing is handed off meanwhile. That is a warning, and becomes critical only
-- after `governance.watch.planned_stop`.
create function public.fn_governance_watch(p_now timestamptz default null)
returns table (worker_name text, last_tick_at timestamptz, silent_seconds float8, cadence_seconds float8, verdict text,
               resigned boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_grace interval := coalesce(gov_handoff.gov_config_interval('governance.watch.planned_stop',
        (select c.value from public.dot_config c where c.key = 'governance.watch.planned_stop')), interval '5 minutes');
    v_detail jsonb;
    v_gap text;
    w record;
    f record;
begin
    perform gov_handoff.gov_clock_mend(c.worker_name) from (select distinct worker_name from public.gov_worker_cursor) c;
    -- The gates only use this value. Here an invalid value raises a finding, and a valid one resolves it.
    perform gov_handoff.gov_config_number('governance.ruleset_version', 1, 0, 999999999);
    for w in
        select h.executor_name as name, h.last_tick_at as tick, v_now - h.last_tick_at as age, k.cadence,
               h.lease_owner is null and h.last_tick_status = 'resigned' as resigned,
               exists (select from public.gov_worker_cursor c where c.worker_name = h.executor_name) as has_cursor,
               exists (select from public.gov_worker_cursor c where c.worker_name = h.executor_name and c.metadata ? 'id') as captures,
               h.metadata ->> 'mode' as mode, h.metadata ->> 'slot' as slot
          from public.queue_heartbeat h
         cross join lateral (select gov_handoff.gov_watch_cadence(h.executor_name, h.metadata) as cadence) k
         where k.cadence > interval '0'
         order by h.executor_name
    loop
        worker_name := w.name;
        last_tick_at := w.tick;
        silent_seconds := extract(epoch from w.age);
        cadence_seconds := extract(epoch from w.cadence);
        resigned := w.resigned;
        verdict := case when w.age > w.cadence * 10 and (not w.resigned or w.age > v_grace) then 'critical'
                        when w.age > w.cadence * 3 then 'warning' else 'ok' end;
        if verdict = 'ok' then
            perform gov_handoff.gov_finding_resolve(k || w.name, 'it ticks again')
               from unnest(array['queue_worker_silent:', 'cursor_silent_gap:', 'handoff_silent_gap:']) as k;
            if w.mode = 'stream' then
                perform gov_handoff.gov_finding_resolve('slot_budget_exceeded:' || w.slot, 'streaming within the budget again');
            end if;
            -- Rows that a gap may have left out are proven handed off once every source was certified after the gap was
            -- found.
            perform gov_handoff.gov_finding_resolve(i.coalesce_key, 'every source was certified since')
               from public.system_issues i
              where i.coalesce_key = 'slot_lost:' || w.slot and i.resolved_at is null
                and not exists (select from public.gov_worker_cursor c
                                  left join public.gov_worker_frontier t using (worker_name, source_name)
                                 where c.worker_name = w.name and (t.certified_at > i.last_seen_at) is not true);
        else
            v_detail := jsonb_build_object('worker', w.name, 'last_tick_at', w.tick,
                'silent_seconds', round(extract(epoch from w.age)), 'cadence_seconds', extract(epoch from w.cadence),
                'ended', case when w.resigned then 'resigned' else 'without a word' end);
            v_gap := case when verdict = 'critical' then 'critical' when w.resigned then 'warning' else 'high' end;
            perform gov_handoff.gov_finding_sustain('queue_worker_silent', 'queue_worker_silent:' || w.name, verdict, v_detail, w.cadence);
            if w.has_cursor then
                perform gov_handoff.gov_finding_sustain('cursor_silent_gap', 'cursor_silent_gap:' || w.name, v_gap, v_detail, w.cadence);
            end if;
            if w.captures then
                perform gov_handoff.gov_finding_sustain('handoff_silent_gap', 'handoff_silent_gap:' || w.name, v_gap, v_detail, w.cadence);
            end if;
        end if;
        return next;
    end loop;

    -- Findings whose cause ends without an event: a source that was removed, a rival that is gone, a watermark that moved
    -- on.
    perform gov_handoff.gov_finding_orphans();
    for f in
        select i.coalesce_key as key, 'nobody else has asked for the lease since' as why
          from public.system_issues i
          left join public.queue_heartbeat h on h.executor_name = i.detail ->> 'worker'
         where i.issue_kind = 'cursor_lease_conflict' and i.resolved_at is null
           and i.last_seen_at < v_now - 5 * coalesce((h.metadata ->> 'ttl_ms')::bigint, 15000) * interval '1 millisecond'
        union all
        select i.coalesce_key, 'the watermark moved on'
          from public.system_issues i
          join public.gov_worker_cursor c on c.worker_name = i.detail ->> 'worker' and c.source_name = i.detail ->> 'source'
         where i.issue_kind = 'cursor_watermark_regression' and i.resolved_at is null
           and gov_handoff.gov_watermark_ahead(c.last_watermark_ts, c.last_watermark_id, (i.detail ->> 'held_at')::timestamptz,
                                   i.detail ->> 'held_id', c.metadata)
    loop
        perform gov_handoff.gov_finding_resolve(f.key, f.why);
    end loop;

    -- An emitter that was refused does not say when it has mended its ways. It may hold the row in a transaction that stays
    -- open; the watch goes on.
    perform gov_handoff.gov_finding_resolve(i.key, 'nothing was refused for a day')
       from (select o.coalesce_key as key from public.system_issues o
              where o.issue_kind in ('queue.payload_violation', 'queue.nvsz_violation', 'queue.emit_refused') and o.detail ? 'event_domain'
                and o.resolved_at is null and o.last_seen_at < v_now - interval '1 day' for update skip locked) i;
end
$$;

-- How many captures wait, by type. Types ship inactive, so millions may wait, and a dashboard asks every few seconds. So
-- each type is counted up to ten thousand, and the types are found by skipping along the index of what is open.
-- Sequential scans are off: a long dashboard session would plan one while the table is small, and keep that plan when it
-- is large.
create function gov_handoff.gov_captured()
returns table (event_type text, waiting bigint, more boolean) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with recursive hint (event_type) as (
        (select p.event_type_hint from public.event_pending p
          where p.processed_at is null and p.event_type_hint is not null
          order by p.event_type_hint limit 1)
        union all
        select (select p.event_type_hint from public.event_pending p
                 where p.processed_at is null and p.event_type_hint > h.event_type
                 order by p.event_type_hint limit 1)
          from hint h where h.event_type is not null
    )
    select h.event_type, n.waiting, n.waiting >= 10000
      from hint h
     cross join lateral (select count(*) as waiting
                           from (select from public.event_pending p
                                  where p.processed_at is null and p.event_type_hint = h.event_type
                                    and p.event_domain = 'governance'
                                  limit 10000) few) n
     where h.event_type is not null and n.waiting > 0
$$;

-- The health check that observers of every worker domain expect, in the agreed shape. Counts stop at ten thousand, for
-- each type that waits and for dead letters: a check that runs every few seconds must not cost as much as the backlog is
-- large.
create function public.fn_governance_route_worker_health(p_worker text default 'gov_handoff_intake')
returns jsonb language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
               'worker_name', p_worker,
               'last_run_at', r.last_run_at,
               'ageSeconds', extract(epoch from clock_timestamp() - r.last_run_at)::bigint,
               'backlog_count', (select coalesce(sum(w.waiting), 0)::bigint from gov_handoff.gov_captured() w),
               'dead_letter_open', (select count(*) from (select from public.iu_route_dead_letter d
                                     where d.event_domain = 'governance' and d.worker_name = p_worker and d.resolved_at is null
                                     limit 10000) few),
               'lease_active', coalesce(h.lease_owner is not null and h.last_tick_at > clock_timestamp()
                                   - coalesce((h.metadata ->> 'ttl_ms')::bigint, 15000) * interval '1 millisecond', false),
               'lease_age_seconds', extract(epoch from clock_timestamp() - h.last_tick_at)::bigint)
      from (values (1)) as one (row)
      left join public.queue_heartbeat h on h.executor_name = p_worker
      left join lateral (select greatest(h.last_tick_at, max(c.last_run_at)) as last_run_at
                           from public.gov_worker_cursor c where c.worker_name = p_worker) r on true
$$;

-- For observers ----------------------------------------------------------------------------------------------------

-- Counting the dirty groups must not read all groups. The flag rarely changes, so updates of a dirty group stay cheap.
create index gov_candidate_group_dirty on public.gov_candidate_group (group_key) where dirty;

-- Dirty groups, and those that an open invalidation has not reached yet, counted up to 10,000. `status` and the page ask every few
-- seconds, so no look may cost more the more groups there are: of the groups that an invalidation has not reached yet the next
-- 10,000 are looked at.
create function gov_handoff.gov_dirty_groups()
returns bigint language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select least(10000, (select count(*) from (select from public.gov_candidate_group where dirty limit 10000) few)
         + case when exists (select from public.gov_invalidation i where i.done_at is null)
                then (select count(*) from (
                        select g.group_key, g.dims, g.dirty from public.gov_candidate_group g
                         where g.group_key > (select min(coalesce(o.expanded_to, '')) from public.gov_invalidation o where o.done_at is null)
                         order by g.group_key limit 10000) next
                       where not next.dirty and exists (select from public.gov_invalidation i
                              where i.done_at is null and next.dims @> i.scope and next.group_key > coalesce(i.expanded_to, '')))
                else 0 end)
$$;

create view public.v_governance_finding as
select id, issue_kind as kind, severity, coalesce_key, detail, occurrence_count, first_seen_at, last_seen_at, resolved_at,
       resolution
  from public.system_issues
 where source_system = 'gov-handoff';

-- `waiting` and `retrying` are counted as in gov_captured; `more` says that there may be more.
create view public.v_governance_summary as
select w.waiting, w.retrying, w.more,
       (select count(*) from (select from public.v_governance_dead_letter_open limit 10000) few) as dead_letters,
       gov_handoff.gov_dirty_groups() as dirty_groups,
       (select count(*) from public.v_governance_finding where resolved_at is null) as open_findings
  from (select coalesce(sum(c.waiting) filter (where c.event_type <> 'governance.handoff.retry'), 0)::bigint as waiting,
               coalesce(sum(c.waiting) filter (where c.event_type = 'governance.handoff.retry'), 0)::bigint as retrying,
               coalesce(bool_or(c.more), false) as more
          from gov_handoff.gov_captured() c) w;

create view public.v_governance_certificate as
select worker_name, source_name, last_run_summary -> 'certificate' as certificate
  from public.gov_worker_cursor
 where last_run_summary ? 'certificate';

-- From a log of our own: certificates are also events in the outbox, but the outbox has no index that finds them.
create view public.v_governance_certificate_history as
select worker_name, source_name, taken_at, certificate from public.gov_certificate_log;

create view public.v_governance_stream as
select slot_name, system_identifier, timeline, durable_lsn, updated_at from public.gov_stream_position;

-- Privileges -------------------------------------------------------------------------------------------------------

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_config_interval(text,text)', 'gov_handoff.gov_watch_cadence(text,jsonb)',
        'gov_handoff.gov_finding_orphans()', 'gov_handoff.gov_captured()', 'gov_handoff.gov_dirty_groups()', 'gov_handoff.gov_watermark_hold()',
        'gov_handoff.gov_heartbeat_emit(text,text,bigint)',
        'public.fn_governance_watch(timestamptz)', 'public.fn_governance_route_worker_health(text)']::regprocedure[] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant execute on function gov_handoff.gov_heartbeat_emit(text, text, bigint) to gov_handoff_worker;
grant execute on function public.fn_governance_watch(timestamptz) to gov_handoff_worker, gov_handoff_operator;
grant execute on function public.fn_governance_route_worker_health(text), gov_handoff.gov_captured(), gov_handoff.gov_dirty_groups()
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
grant select on public.v_governance_finding, public.v_governance_summary, public.v_governance_certificate,
    public.v_governance_certificate_history, public.v_governance_stream
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
