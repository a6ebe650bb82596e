-- A clock that was stepped back must not keep a silent worker alive.

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
