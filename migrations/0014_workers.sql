-- The frame of the worker family: pausing a worker, and the checkpoint that ends every page of work.

-- An operator pauses a worker here. The row outlives every daemon, so a worker stays paused across restarts. A worker
-- without a row is not paused. The holder of the lease reads it every second, goes on ticking, and does no work.
create table public.gov_worker_control (
    worker_name text        not null primary key,
    paused      boolean     not null,
    reason      text,
    changed_by  text        not null,
    changed_at  timestamptz not null default clock_timestamp(),
    constraint gov_worker_control_worker_named check (btrim(worker_name) <> ''),
    constraint gov_worker_control_actor_named check (btrim(changed_by) <> '')
);

-- Pauses or resumes a worker. Returns whether this changed anything. A pause is a finding for as long as it lasts: nothing
-- stops in silence.
create function gov_handoff.gov_worker_pause(p_worker text, p_paused boolean, p_actor text, p_reason text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into public.gov_worker_control as c (worker_name, paused, reason, changed_by)
    select p_worker, p_paused, p_reason, coalesce(p_actor, session_user::text)
     where p_paused or exists (select from public.gov_worker_control k where k.worker_name = p_worker)
    on conflict (worker_name) do update
        set paused = excluded.paused, reason = excluded.reason, changed_by = excluded.changed_by,
            changed_at = clock_timestamp()
        where c.paused <> excluded.paused;
    if not found then
        return false;
    end if;
    if p_paused then
        perform gov_handoff.gov_finding_raise('worker_paused', 'worker_paused:' || p_worker, 'info',
            jsonb_build_object('worker', p_worker, 'by', coalesce(p_actor, session_user::text), 'reason', p_reason));
    else
        perform gov_handoff.gov_finding_resolve('worker_paused:' || p_worker, 'the worker was resumed');
    end if;
    return true;
end
$$;

-- The end of a page of work: the fence and the checkpoint. Every gate that records the effects of a page calls it last,
-- because of the fence (see gov_lease_fence). Lease and cursor are locked in the order of 0002.
--
-- The summary is about one run: the pages from the first one that found work to the last. p_begins: this page is the
-- first of a run. p_ends: nothing is left to do.
create function gov_handoff.gov_worker_page(p_worker text, p_owner text, p_term bigint, p_source text, p_rows bigint,
                                       p_marked bigint, p_dlq bigint, p_begins boolean, p_ends boolean)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    insert into public.gov_worker_cursor as c (worker_name, source_name, last_run_at, events_seen, attempts_written, dead_lettered,
        last_run_summary)
    values (p_worker, p_source, clock_timestamp(), p_rows, p_marked, p_dlq,
            gov_handoff.gov_worker_summary('{}', p_rows, p_marked, p_dlq, true, p_ends))
    on conflict (worker_name, source_name) do update
        set last_run_at = clock_timestamp(), updated_at = clock_timestamp(), events_seen = c.events_seen + p_rows,
            attempts_written = c.attempts_written + p_marked, dead_lettered = c.dead_lettered + p_dlq,
            last_run_summary = gov_handoff.gov_worker_summary(c.last_run_summary, p_rows, p_marked, p_dlq, p_begins, p_ends);
end
$$;

-- The summary of a run after one more page. Entries of other kinds, such as a certificate, stay.
create function gov_handoff.gov_worker_summary(p_summary jsonb, p_rows bigint, p_marked bigint, p_dlq bigint,
                                          p_begins boolean, p_ends boolean)
returns jsonb language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select p_summary || jsonb_build_object(
        'batch_count', case when p_begins then 0 else coalesce((p_summary ->> 'batch_count')::bigint, 0) end + 1,
        'rows_seen', case when p_begins then 0 else coalesce((p_summary ->> 'rows_seen')::bigint, 0) end + p_rows,
        'dirty_marked', case when p_begins then 0 else coalesce((p_summary ->> 'dirty_marked')::bigint, 0) end + p_marked,
        'dlq', case when p_begins then 0 else coalesce((p_summary ->> 'dlq')::bigint, 0) end + p_dlq,
        'snapshot_ref', pg_current_snapshot()::text,
        'ruleset_version', (select case when k.value ~ '^[0-9]{1,9}$' then k.value::int end
                              from public.dot_config k where k.key = 'governance.ruleset_version'),
        'started_at', case when p_begins or p_summary -> 'started_at' is null then to_jsonb(clock_timestamp())
                           else p_summary -> 'started_at' end,
        'ended_at', case when p_ends then to_jsonb(clock_timestamp()) end)
$$;

-- The checkpoint of the intake. Its batches count in the cursor's own columns, which is cheaper; its keeper turns the
-- counters into a summary now and then. A run of the intake is one holding of the lease: `base` keeps the counters as
-- they were when it began. `batch_count` counts the commits under the lease, and so includes its renewals.
create function gov_handoff.gov_worker_checkpoint(p_worker text, p_owner text, p_term bigint)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The lease first, as in the gates that apply a batch: all transactions take these locks in one order.
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    -- The summary that is extended is the cursor's own (c), not the one that was joined: an audit may put a certificate
    -- into it while this statement waits for the row, and only the updated row itself is read again after the wait.
    update public.gov_worker_cursor c
       set last_run_summary = c.last_run_summary || jsonb_build_object(
               'base', s.base, 'batch_count', s.ticks - (s.base ->> 'ticks')::bigint,
               'rows_seen', c.events_seen - (s.base ->> 'rows')::bigint,
               'dirty_marked', c.attempts_written - (s.base ->> 'signals')::bigint,
               'dlq', c.dead_lettered - (s.base ->> 'dlq')::bigint,
               'snapshot_ref', pg_current_snapshot()::text,
               'ruleset_version', (select case when k.value ~ '^[0-9]{1,9}$' then k.value::int end
                                     from public.dot_config k where k.key = 'governance.ruleset_version'),
               'started_at', s.base -> 'at', 'ended_at', c.last_run_at)
      from (select k.worker_name, k.source_name, h.ticks_total as ticks,
                   case when (k.last_run_summary #>> '{base,term}')::bigint = p_term then k.last_run_summary -> 'base'
                        else jsonb_build_object('term', p_term, 'at', clock_timestamp(), 'ticks', h.ticks_total, 'rows', k.events_seen,
                                                'signals', k.attempts_written, 'dlq', k.dead_lettered) end as base
              from public.gov_worker_cursor k join public.queue_heartbeat h on h.executor_name = k.worker_name
             where k.worker_name = p_worker and k.metadata ? 'id') s
     where c.worker_name = s.worker_name and c.source_name = s.source_name
       and (c.last_run_summary -> 'ended_at' is distinct from to_jsonb(c.last_run_at)
            or c.last_run_summary -> 'base' is distinct from s.base);
end
$$;

-- Every worker of ours that has ever ticked, for people. Bounded: one row for each worker, by keys.
create view public.v_gov_worker as
select h.executor_name as worker_name,
       case when coalesce(k.paused, false) then 'paused'
            when h.lease_owner is null then 'stopped'
            when h.last_tick_at > clock_timestamp() - (h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond' then 'running'
            else 'silent' end as state,
       h.lease_owner, (h.metadata ->> 'term')::bigint as term, h.last_tick_at, h.ticks_total,
       k.reason as paused_because, k.changed_by as paused_by, k.changed_at as paused_at,
       c.sources, c.rows_seen, c.effects, c.dead_lettered, c.last_run_at, c.phase,
       h.metadata ->> 'mode' as mode, h.metadata -> 'progress' as progress
  from public.queue_heartbeat h
  left join public.gov_worker_control k on k.worker_name = h.executor_name and k.paused
  left join lateral (
       select count(*) as sources, sum(w.events_seen)::bigint as rows_seen, sum(w.attempts_written)::bigint as effects,
              sum(w.dead_lettered)::bigint as dead_lettered, max(w.last_run_at) as last_run_at, min(w.phase) as phase
         from public.gov_worker_cursor w where w.worker_name = h.executor_name) c on true
 where h.executor_name like 'gov\_%'
   -- The leases of commands.
   and h.executor_name not in ('gov_handoff_audit', 'gov_handoff_dlq');

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_worker_pause(text,boolean,text,text)',
        'gov_handoff.gov_worker_page(text,text,bigint,text,bigint,bigint,bigint,boolean,boolean)',
        'gov_handoff.gov_worker_summary(jsonb,bigint,bigint,bigint,boolean,boolean)',
        'gov_handoff.gov_worker_checkpoint(text,text,bigint)']::regprocedure[] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant select, insert, update on public.gov_worker_control to gov_handoff_owner;
grant execute on function gov_handoff.gov_worker_pause(text, boolean, text, text) to gov_handoff_operator;
grant execute on function gov_handoff.gov_worker_checkpoint(text, text, bigint) to gov_handoff_worker;
grant select on public.gov_worker_control to gov_handoff_worker, gov_handoff_operator;
grant select on public.v_gov_worker to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
