-- What must stay steady over the years: liveness when the clock is set back, the number of open ranges, and what
-- we say about ourselves.

-- Clock ------------------------------------------------------------------------------------------------------------

-- A tick that lies ahead of the clock was written before the clock was set back. It counts as one of now: a worker that lives
-- writes another soon, and one that does not is silent from here on, rather than once the clock has caught up. A second is
-- left to two statements that read the clock in another order than they write.
create function public.gov_clock_mend(p_worker text)
returns void language sql
set search_path = pg_catalog, public, pg_temp
as $$
    update queue_heartbeat set last_tick_at = clock_timestamp()
     where executor_name = p_worker and last_tick_at > clock_timestamp() + interval '1 second'
$$;
alter function public.gov_clock_mend(text) owner to gov_handoff_owner;
revoke all on function public.gov_clock_mend(text) from public;

-- As in 0003, and with a tick that is no later than now.
create or replace function public.gov_lease_claim(p_worker text, p_owner text, p_ttl interval)
returns table (held boolean, term bigint, owner text, age_ms bigint) language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
begin
    -- Before the claim: nobody may find us the holder and our lock free.
    perform pg_advisory_lock_shared(6748002, hashtext(p_owner));
    insert into queue_heartbeat (executor_name, executor_kind, last_tick_at, ticks_total, metadata)
    values (p_worker, 'external_worker', clock_timestamp(), 0, '{"term": 0}')
    on conflict (executor_name) do nothing;

    perform gov_clock_mend(p_worker);
    update queue_heartbeat h
       set lease_owner = p_owner, last_tick_at = clock_timestamp(), last_tick_status = 'ok', updated_at = clock_timestamp(),
           metadata = h.metadata || jsonb_build_object(
               'ttl_ms', (extract(epoch from p_ttl) * 1000)::bigint,
               'term', coalesce((h.metadata ->> 'term')::bigint, 0)
                       + case when h.lease_owner is distinct from p_owner then 1 else 0 end)
     where h.executor_name = p_worker
       and (h.lease_owner is null or h.lease_owner = p_owner
            or h.last_tick_at < clock_timestamp()
                 - coalesce((h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond', p_ttl)
            or pg_try_advisory_xact_lock(6748002, hashtext(h.lease_owner)));

    return query
        select h.lease_owner = p_owner, coalesce((h.metadata ->> 'term')::bigint, 0), h.lease_owner,
               (extract(epoch from clock_timestamp() - h.last_tick_at) * 1000)::bigint
          from queue_heartbeat h where h.executor_name = p_worker;
end
$$;

-- As in 0009, and with ticks that are no later than now.
create or replace function public.fn_governance_watch(p_now timestamptz default null)
returns table (worker_name text, last_tick_at timestamptz, silent_seconds float8, cadence_seconds float8, verdict text,
               resigned boolean)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_grace interval := coalesce((select c.value::interval from dot_config c where c.key = 'governance.watch.planned_stop'),
                                 interval '5 minutes');
    v_detail jsonb;
    v_gap text;
    w record;
    f record;
begin
    perform gov_clock_mend(c.worker_name) from (select distinct worker_name from gov_worker_cursor) c;
    for w in
        select h.executor_name as name, h.last_tick_at as tick, v_now - h.last_tick_at as age, k.cadence,
               h.lease_owner is null and h.last_tick_status = 'resigned' as resigned,
               exists (select from gov_worker_cursor c where c.worker_name = h.executor_name) as has_cursor,
               exists (select from gov_worker_cursor c where c.worker_name = h.executor_name and c.metadata ? 'id') as captures,
               h.metadata ->> 'mode' as mode, h.metadata ->> 'slot' as slot
          from queue_heartbeat h
          left join dot_config c on c.key = 'governance.watch.cadence.' || h.executor_name
         cross join lateral (select case when c.value = 'off' then null when c.value is not null then c.value::interval
                 else (h.metadata ->> 'cadence_ms')::bigint * interval '1 millisecond' end as cadence) k
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
            perform gov_finding_resolve(k || w.name, 'it ticks again')
               from unnest(array['queue_worker_silent:', 'cursor_silent_gap:', 'handoff_silent_gap:']) as k;
            if w.mode = 'stream' then
                perform gov_finding_resolve('slot_budget_exceeded:' || w.slot, 'streaming within the budget again');
            end if;
            -- What a slot that did not continue may have left out is proven handed off once every source was certified since.
            perform gov_finding_resolve(i.coalesce_key, 'every source was certified since')
               from system_issues i
              where i.coalesce_key = 'slot_lost:' || w.slot and i.resolved_at is null
                and not exists (select from gov_worker_cursor c
                                  left join gov_worker_frontier t using (worker_name, source_name)
                                 where c.worker_name = w.name and (t.certified_at > i.last_seen_at) is not true);
        else
            v_detail := jsonb_build_object('worker', w.name, 'last_tick_at', w.tick,
                'silent_seconds', round(extract(epoch from w.age)), 'cadence_seconds', extract(epoch from w.cadence),
                'ended', case when w.resigned then 'resigned' else 'without a word' end);
            v_gap := case when verdict = 'critical' then 'critical' when w.resigned then 'warning' else 'high' end;
            perform gov_finding_sustain('queue_worker_silent', 'queue_worker_silent:' || w.name, verdict, v_detail, w.cadence);
            if w.has_cursor then
                perform gov_finding_sustain('cursor_silent_gap', 'cursor_silent_gap:' || w.name, v_gap, v_detail, w.cadence);
            end if;
            if w.captures then
                perform gov_finding_sustain('handoff_silent_gap', 'handoff_silent_gap:' || w.name, v_gap, v_detail, w.cadence);
            end if;
        end if;
        return next;
    end loop;

    -- What has ended without anybody saying so: a rival that is gone, a watermark that moved on, a source that is no more.
    for f in
        select i.coalesce_key as key, 'nobody else has asked for the lease since' as why
          from system_issues i
          left join queue_heartbeat h on h.executor_name = i.detail ->> 'worker'
         where i.issue_kind = 'cursor_lease_conflict' and i.resolved_at is null
           and i.last_seen_at < v_now - 5 * coalesce((h.metadata ->> 'ttl_ms')::bigint, 15000) * interval '1 millisecond'
        union all
        select i.coalesce_key, 'the watermark moved on'
          from system_issues i
          join gov_worker_cursor c on c.worker_name = i.detail ->> 'worker' and c.source_name = i.detail ->> 'source'
         where i.issue_kind = 'cursor_watermark_regression' and i.resolved_at is null
           and gov_watermark_ahead(c.last_watermark_ts, c.last_watermark_id, (i.detail ->> 'held_at')::timestamptz,
                                   i.detail ->> 'held_id', c.metadata)
        union all
        select i.coalesce_key, 'the source is no longer registered'
          from system_issues i
         where i.issue_kind in ('cursor_lag', 'cursor_watermark_regression') and i.resolved_at is null
           and not exists (select from gov_worker_cursor c
                            where c.worker_name = i.detail ->> 'worker' and c.source_name = i.detail ->> 'source')
    loop
        perform gov_finding_resolve(f.key, f.why);
    end loop;
end
$$;

-- Holes ------------------------------------------------------------------------------------------------------------

-- Every rolled-back insert burns ids, and each stretch of them would stay a range for ever. Beyond so many they are left to
-- the frontier. How many ids that were is kept, because rows are counted against the ids that left the ranges.
alter table public.gov_worker_frontier add column certified_away numeric not null default 0;
insert into public.dot_config (key, value)
select 'governance.holes.kept', '10000' where not exists (select from public.dot_config where key = 'governance.holes.kept');

-- As in 0003, and with holes certified away.
create or replace function public.gov_frontier_advance(p_worker text, p_owner text, p_term bigint, p_source text, p_frontier xid8,
                                            p_system text, p_lsn pg_lsn)
returns void language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    -- A row each; ten thousand cost a pass over all of them fifty milliseconds.
    v_kept bigint := gov_config_number('governance.holes.kept', 10000, 0, 1000000);
    v_away numeric;
begin
    insert into gov_worker_frontier as f (worker_name, source_name, frontier, system_identifier, certified_lsn)
    values (p_worker, p_source, p_frontier, p_system, p_lsn)
    on conflict (worker_name, source_name) do update
        set frontier = p_frontier, system_identifier = p_system, certified_lsn = p_lsn, certified_at = clock_timestamp()
        -- A frontier of this server never goes back: the rows between were looked at under the later one.
        -- One that no transaction has reached yet was never a snapshot's, and must not stand in the way for ever.
        where f.system_identifier <> p_system or f.frontier < p_frontier
           or f.frontier > pg_snapshot_xmax(pg_current_snapshot());
    -- Whatever is in no open range and was not handed off was written by a transaction at or after the frontier: the next
    -- pass selects it by that and not by its id. So ids that nobody seems to use may leave the ranges as soon as there is a
    -- frontier; they are found at its cadence then. Not the lowest range, which is the way down, and nothing that is hot.
    with gone as (
        delete from gov_worker_gap g
         using (select c.lo from gov_worker_gap c
                 where c.worker_name = p_worker and c.source_name = p_source and not c.hot
                   and c.lo > (select min(m.lo) from gov_worker_gap m
                                where m.worker_name = p_worker and m.source_name = p_source)
                 order by c.lo
                 limit (select greatest(count(*) - v_kept, 0) from gov_worker_gap n
                         where n.worker_name = p_worker and n.source_name = p_source and not n.hot)) x
         where g.worker_name = p_worker and g.source_name = p_source and g.lo = x.lo
        returning g.hi::numeric - g.lo::numeric + 1 as ids
    )
    select sum(ids) into v_away from gone;
    if v_away is not null then
        update gov_worker_frontier set certified_away = certified_away + v_away
         where worker_name = p_worker and source_name = p_source;
    end if;
    -- Last, as everywhere: its row lock orders us against a takeover, and nothing but the commit follows it.
    perform gov_lease_fence(p_worker, p_owner, p_term);
end
$$;

-- Notices ----------------------------------------------------------------------------------------------------------

-- What we say about ourselves in the outbox: the history of certificates, heartbeats, announced findings. They are about no
-- row, so nothing has to be remembered of them; the latest certificate of each source stands in its cursor.
create function public.gov_notices_retire(p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_n bigint;
begin
    delete from event_outbox e
     using (select o.id from event_outbox o
             where o.event_domain in ('governance', 'system') and o.event_stream in ('health', 'alert')
               and o.event_subject_ref is null and o.source_system = 'gov-handoff' and o.created_at < p_before
             limit p_limit) x
     where e.id = x.id;
    get diagnostics v_n = row_count;
    return v_n;
end
$$;
alter function public.gov_notices_retire(timestamptz, int) owner to gov_handoff_owner;
revoke all on function public.gov_notices_retire(timestamptz, int) from public;
grant execute on function public.gov_notices_retire(timestamptz, int) to gov_handoff_operator;

-- Locks ------------------------------------------------------------------------------------------------------------

-- As in 0005, in the order of locks that applying a batch has: types, lease, cursor. (The server runs the parts of a WITH that
-- nothing refers to after the rest, so a batch updates its cursors behind the fence, whatever the text's order.) The other way
-- round a certificate and a batch of the stream waited for each other now and then, and one of them was ended for it. The
-- fence is as good at the start: its row stays locked to the commit, so a takeover waits for all of this.
create or replace function public.gov_certificate_put(p_worker text, p_owner text, p_term bigint, p_cursor_worker text, p_source text,
                                           p_certificate jsonb, p_history boolean)
returns void language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_active boolean;
begin
    if p_history then
        perform pg_advisory_xact_lock_shared(6748001, 1);
    end if;
    perform gov_lease_fence(p_worker, p_owner, p_term);
    update gov_worker_cursor
       set last_run_summary = jsonb_set(last_run_summary, '{certificate}', p_certificate), updated_at = clock_timestamp(),
           phase = 'incremental'
     where worker_name = p_cursor_worker and source_name = p_source;
    if p_history then
        select active into v_active from event_type_registry
         where event_domain = 'governance' and event_type = 'governance.handoff.certified';
        if v_active then
            insert into event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, canonical_address, actor_ref, source_system, payload_classification, safe_payload)
            values (gen_random_uuid(), 'governance', 'governance.handoff.certified', 'health', 'info', 'immediate',
                p_source, 'certificate:' || p_source, p_owner, 'gov-handoff', 'safe_metadata', p_certificate);
        else
            -- Nobody has asked for them yet, and might not for years: of each source the latest waits. Two who certify one
            -- source come one after the other, because the cursor's row is locked by now.
            delete from event_pending
             where event_domain = 'governance' and event_type_hint = 'governance.handoff.certified' and processed_at is null
               and entity_table = p_source;
            insert into event_pending (id, event_domain, event_type_hint, entity_table, canonical_address, actor_ref,
                capture_payload)
            values (gen_random_uuid(), 'governance', 'governance.handoff.certified', p_source, 'certificate:' || p_source,
                p_owner, p_certificate || '{"event_stream": "health", "event_severity": "info", "source_system": "gov-handoff"}');
        end if;
        perform gov_audit_write(p_owner, p_source, 'certified');
    end if;
end
$$;
