-- Rejected rows: staged for a retry, then dead letters, and the operator's decisions about them.
--
-- A row that the database rejects is staged in event_pending under an identity of its own (kind
-- `governance.handoff.retry`). It is retried when it is due, and moved to iu_route_dead_letter when its attempts are used
-- up. It is in exactly one of the two tables until its signals are recorded or an operator has decided about it. Both
-- tables may be live ones of an older shape: event_pending without process_after, iu_route_dead_letter without
-- resolved_by. Then a jsonb column of the same row carries the value.

-- A whole number from public.dot_config. If the value is not a number, or out of bounds, a finding is raised and the
-- default applies.
create function gov_handoff.gov_config_number(p_key text, p_default bigint, p_min bigint, p_max bigint)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text;
begin
    select btrim(value) into v_text from public.dot_config where key = p_key;
    if v_text is null or (v_text ~ '^[0-9]{1,15}$' and v_text::bigint between p_min and p_max) then
        perform gov_handoff.gov_finding_resolve('config_invalid:' || p_key, 'the value can be used');
        return coalesce(v_text::bigint, p_default);
    end if;
    perform gov_handoff.gov_finding_raise('config_invalid', 'config_invalid:' || p_key, 'warning',
        jsonb_build_object('key', p_key, 'expected', format('a whole number from %s to %s', p_min, p_max),
                           'in_force', p_default), true);
    return p_default;
end
$$;

-- Staging ----------------------------------------------------------------------------------------------------------

create function gov_handoff.gov_retry_schedule(p_id uuid, p_delay_ms bigint)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_at timestamptz := clock_timestamp() + p_delay_ms * interval '1 millisecond';
begin
    if exists (select from pg_attribute where attrelid = 'public.event_pending'::regclass and attname = 'process_after'
                  and not attisdropped) then
        execute 'update public.event_pending set process_after = $1 where id = $2' using v_at, p_id;
    else
        update public.event_pending set capture_payload = capture_payload || jsonb_build_object('process_after', v_at)
         where id = p_id;
    end if;
end
$$;

-- Stages a poison row. It commits before the reader moves past the row and does not move the reader. After a crash in
-- between, the row is delivered again and found staged. A row that has a dead letter already is not staged.
create function gov_handoff.gov_handoff_stage(p_worker text, p_owner text, p_term bigint, p_table text, p_id uuid, p_ref uuid,
    p_letter text, p_address text, p_actor text, p_error text, p_payload jsonb, p_delay_ms bigint, p_version uuid)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_new boolean;
begin
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(array[p_version]);
    if gov_handoff.gov_backlog_yield(p_worker, p_payload ->> 'source', p_payload ->> 'source_key', p_ref) then
        perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
        return false;
    end if;
    insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
        capture_payload, error_count, last_error)
    select p_id, 'governance', 'governance.handoff.retry', p_table, p_ref, p_address, p_actor, p_payload, 1,
           left(p_error, 2000)
     where not exists (select from public.iu_route_dead_letter d
                        where d.event_domain = 'governance' and d.idempotency_key = p_letter
                          and d.resolution is distinct from 'replayed')
    on conflict (id) do nothing;
    v_new := found;
    if v_new then
        perform gov_handoff.gov_retry_schedule(p_id, p_delay_ms);
    end if;
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    return v_new;
end
$$;

-- The row was rejected again. The count is given, not incremented, so that a repeated call does not count twice.
create function gov_handoff.gov_retry_again(p_worker text, p_owner text, p_term bigint, p_id uuid, p_attempts int, p_error text,
                                       p_delay_ms bigint)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.event_pending set error_count = greatest(error_count, p_attempts), last_error = left(p_error, 2000)
     where id = p_id and event_type_hint = 'governance.handoff.retry';
    perform gov_handoff.gov_retry_schedule(p_id, p_delay_ms);
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
end
$$;

-- Removes a staged row; called only after its signals are recorded. Signals in p_signals that were captured and then
-- rejected (gov_handoff_drain) are in the outbox by now, or wait for their type like any other capture.
create function gov_handoff.gov_retry_done(p_worker text, p_owner text, p_term bigint, p_id uuid, p_signals uuid[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from public.event_pending where id = p_id and event_domain = 'governance' and event_type_hint = 'governance.handoff.retry';
    update public.event_pending p
       set last_error = null,
           processed_at = case when exists (select from public.event_outbox o where o.id = p.id) then clock_timestamp() end
     where p.id = any (p_signals) and p.last_error = 'refused_by_outbox';
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
end
$$;

create view public.v_governance_retry as
select p.id, p.capture_payload ->> 'source' as source_name, p.capture_payload ->> 'source_key' as source_key,
       p.error_count as attempts, p.last_error,
       coalesce(to_jsonb(p) ->> 'process_after', p.capture_payload ->> 'process_after')::timestamptz as next_attempt_at
  from public.event_pending p
 where p.event_domain = 'governance' and p.event_type_hint = 'governance.handoff.retry' and p.processed_at is null;

-- Dead letters -----------------------------------------------------------------------------------------------------

-- Raises a finding about the number of open dead letters, more severe as it grows. Resolved when it is within the limit
-- again.
create function gov_handoff.gov_dead_letter_watch()
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_limit bigint := gov_handoff.gov_config_number('event.dlq.overflow', 100, 1, 1000000000);
    v_depth bigint;
begin
    -- The count stops at ten times the limit: this runs for each dead letter, and a full count would be slow just when
    -- there are many.
    select count(*) into v_depth
      from (select from public.iu_route_dead_letter where event_domain = 'governance' and resolved_at is null
             limit v_limit * 10) d;
    if v_depth > v_limit then
        perform gov_handoff.gov_finding_raise('handoff_dlq_overflow', 'handoff_dlq_overflow',
            case when v_depth >= v_limit * 10 then 'critical' else 'high' end,
            jsonb_build_object('open', v_depth, 'limit', v_limit));
    else
        perform gov_handoff.gov_finding_resolve('handoff_dlq_overflow', 'no more open dead letters than the limit');
    end if;
end
$$;

-- Makes a dead letter of a row, and removes its staged row in the same commit: the row is always in one of the two. The
-- letter belongs to the worker that reads the source, even if an audit or a replay found the row: those have no letters
-- of their own.
create function gov_handoff.gov_dead_letter_put(p_worker text, p_owner text, p_term bigint, p_source text, p_staged uuid,
    p_ref uuid, p_letter text, p_code text, p_detail text, p_attempts int, p_snapshot jsonb, p_signals uuid[],
    p_version uuid)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_worker text;
    v_new boolean;
begin
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(array[p_version]);
    -- The fence comes before the cursor, because a batch locks its cursor after the fence as well. No takeover until the
    -- commit.
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    if gov_handoff.gov_backlog_yield(p_worker, p_source, p_snapshot ->> 'source_key', p_ref) then
        return false;
    end if;
    select coalesce(max(c.worker_name) filter (where c.worker_name = p_worker), min(c.worker_name), p_worker) into v_worker
      from public.gov_worker_cursor c where c.source_name = p_source and c.metadata ? 'id';
    -- An operator's replay handed the row off once; since then its signal was lost and the row was rejected. The same
    -- letter is opened again.
    update public.iu_route_dead_letter
       set resolved_at = null, resolution = null, failure_code = p_code, failure_detail = left(p_detail, 2000),
           attempts = p_attempts, last_failed_at = clock_timestamp()
     where worker_name = v_worker and event_domain = 'governance' and idempotency_key = p_letter and resolution = 'replayed';
    v_new := found;
    if not v_new then
        insert into public.iu_route_dead_letter (worker_name, event_ref, event_domain, event_type, route_code, idempotency_key,
            failure_code, failure_detail, attempts, event_snapshot)
        select v_worker, p_ref, 'governance', 'governance.handoff.refused', p_source, p_letter, p_code,
               left(p_detail, 2000), p_attempts, p_snapshot
         where not exists (select from public.iu_route_dead_letter d
                            where d.worker_name = v_worker and d.idempotency_key = p_letter)
        on conflict do nothing;
        v_new := found;
    end if;
    if not v_new then
        -- Another row may have taken the key and been rejected as well. The letter stands for that row from now on.
        update public.iu_route_dead_letter set last_failed_at = clock_timestamp()
         where worker_name = v_worker and event_domain = 'governance' and idempotency_key = p_letter;
    end if;
    if v_new then
        update public.gov_worker_cursor set dead_lettered = dead_lettered + 1, updated_at = clock_timestamp()
         where worker_name = v_worker and source_name = p_source;
        perform gov_handoff.gov_finding_raise('handoff_dlq', 'handoff_dlq:' || p_source, 'high',
            jsonb_build_object('source', p_source, 'failure_code', p_code));
        perform gov_handoff.gov_finding_raise('cursor_dlq', 'cursor_dlq:' || v_worker, 'high',
            jsonb_build_object('worker', v_worker, 'source', p_source, 'failure_code', p_code));
        -- A producer that sends contents is a finding of its own, whatever the operator decides about the letter.
        if p_code in ('queue.payload_violation', 'queue.nvsz_violation') then
            perform gov_handoff.gov_finding_raise(p_code, p_code || ':' || p_source, 'high',
                jsonb_build_object('source', p_source, 'source_key', left(p_snapshot ->> 'source_key', 300)));
        end if;
        perform gov_handoff.gov_dead_letter_watch();
        perform gov_handoff.gov_audit_write(p_owner, p_source, 'dead_letter');
    end if;
    delete from public.event_pending
     where id = p_staged and event_domain = 'governance' and event_type_hint = 'governance.handoff.retry';
    -- A capture that the outbox rejected no longer waits for its type. It is kept, because it has marked its group.
    update public.event_pending set processed_at = clock_timestamp()
     where id = any (p_signals) and last_error = 'refused_by_outbox' and processed_at is null;
    return v_new;
end
$$;

-- What every decision about a letter records: resolution, actor, reason, an audit row. Findings without open letters are
-- resolved.
create function gov_handoff.gov_dead_letter_close(p_id uuid, p_resolution text, p_reason text, p_actor text)
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_actor text := coalesce(nullif(btrim(p_actor), ''), session_user);
    v_source text;
    v_worker text;
begin
    update public.iu_route_dead_letter
       set resolved_at = clock_timestamp(), resolution = p_resolution,
           event_snapshot = coalesce(event_snapshot, '{}') || jsonb_build_object('resolution',
               jsonb_build_object('by', v_actor, 'reason', p_reason, 'at', clock_timestamp()))
     where id = p_id and event_domain = 'governance' and resolved_at is null
    returning route_code, worker_name into v_source, v_worker;
    if not found then
        return false;
    end if;
    if exists (select from pg_attribute where attrelid = 'public.iu_route_dead_letter'::regclass and attname = 'resolved_by'
                  and not attisdropped) then
        execute 'update public.iu_route_dead_letter set resolved_by = $1 where id = $2' using v_actor, p_id;
    end if;
    if not exists (select from public.iu_route_dead_letter where event_domain = 'governance' and route_code = v_source
                      and resolved_at is null) then
        perform gov_handoff.gov_finding_resolve('handoff_dlq:' || v_source, 'no open dead letters');
        perform gov_handoff.gov_finding_resolve('queue.payload_violation:' || v_source, 'no open dead letters');
        perform gov_handoff.gov_finding_resolve('queue.nvsz_violation:' || v_source, 'no open dead letters');
    end if;
    if not exists (select from public.iu_route_dead_letter where event_domain = 'governance' and worker_name = v_worker
                      and resolved_at is null) then
        perform gov_handoff.gov_finding_resolve('cursor_dlq:' || v_worker, 'no open dead letters');
    end if;
    perform gov_handoff.gov_dead_letter_watch();
    perform gov_handoff.gov_audit_write(v_actor, v_source, 'dead_letter_' || p_resolution);
    return true;
end
$$;

-- An operator's decision that a letter needs no handoff (discarded) or that another row took its place (superseded).
create function gov_handoff.gov_dead_letter_resolve(p_ids uuid[], p_resolution text, p_reason text, p_actor text)
returns uuid[] language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id uuid;
    v_closed uuid[] := '{}';
begin
    if p_resolution not in ('discarded', 'superseded') then
        raise exception 'a dead letter is discarded or superseded, not %', p_resolution using errcode = 'GH003';
    end if;
    if coalesce(btrim(p_reason), '') = '' then
        raise exception 'a dead letter is not % without a reason', p_resolution using errcode = 'GH003',
            hint = 'say why with --reason';
    end if;
    foreach v_id in array p_ids loop
        -- The letter of a job is closed with its job (0023).
        if gov_handoff.gov_dead_letter_close(v_id, p_resolution, p_reason, p_actor)
           or gov_handoff.gov_job_letter_resolve(v_id, p_resolution, p_reason, p_actor) then
            v_closed := v_closed || v_id;
        end if;
    end loop;
    return v_closed;
end
$$;

-- The lease under which operators replay dead letters. It is the only lease that an operator may take.
create function gov_handoff.gov_dead_letter_lease(p_owner text, p_ttl interval)
returns table (held boolean, term bigint, owner text, age_ms bigint, former text) language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select c.held, c.term, c.owner, c.age_ms, c.former from gov_handoff.gov_lease_claim('gov_handoff_dlq', p_owner, p_ttl) c
$$;

-- Closes a letter as replayed. That is only true when its signals are recorded, so this gate checks it, whoever the
-- caller is.
create function gov_handoff.gov_dead_letter_replayed(p_worker text, p_owner text, p_term bigint, p_id uuid, p_signals uuid[],
                                                p_reason text, p_actor text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_closed boolean;
begin
    if cardinality(p_signals) = 0 or exists (
        select from unnest(p_signals) as u (id)
         where not exists (select from public.event_outbox o where o.id = u.id)
           and not exists (select from public.event_pending p where p.id = u.id and p.processed_at is null)
           and not exists (select from public.gov_retired_signal r where r.id = u.id)) then
        raise exception 'dead letter % is not replayed: its signals are not recorded', p_id using errcode = 'GH003';
    end if;
    v_closed := gov_handoff.gov_dead_letter_close(p_id, 'replayed', p_reason, p_actor);
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    return v_closed;
end
$$;

-- A replay was rejected again: the letter stays open and records the failure.
create function gov_handoff.gov_dead_letter_failed(p_worker text, p_owner text, p_term bigint, p_id uuid, p_code text, p_detail text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.iu_route_dead_letter
       set attempts = attempts + 1, last_failed_at = clock_timestamp(), failure_code = p_code,
           failure_detail = left(p_detail, 2000)
     where id = p_id and event_domain = 'governance' and resolved_at is null;
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
end
$$;

-- Privileges -------------------------------------------------------------------------------------------------------

-- Gates of the worker, gates of the operator, and functions that only gates may call. The worker does not decide about
-- letters.
do $$
declare
    f record;
begin
    for f in
        select p.oid::regprocedure as sig, p.proname
          from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace
           and p.proname in ('gov_config_number', 'gov_retry_schedule', 'gov_handoff_stage', 'gov_retry_again', 'gov_retry_done',
               'gov_dead_letter_watch', 'gov_dead_letter_put', 'gov_dead_letter_close', 'gov_dead_letter_resolve',
               'gov_dead_letter_replayed', 'gov_dead_letter_failed', 'gov_dead_letter_lease')
    loop
        execute format('alter function %s owner to gov_handoff_owner', f.sig);
        execute format('revoke all on function %s from public', f.sig);
        if f.proname in ('gov_config_number', 'gov_handoff_stage', 'gov_retry_again', 'gov_retry_done', 'gov_dead_letter_put') then
            execute format('grant execute on function %s to gov_handoff_worker', f.sig);
        elsif f.proname in ('gov_dead_letter_resolve', 'gov_dead_letter_replayed', 'gov_dead_letter_failed',
                'gov_dead_letter_lease') then
            execute format('grant execute on function %s to gov_handoff_operator', f.sig);
        end if;
    end loop;
end
$$;
grant select on public.v_governance_retry to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;

insert into public.dot_config (key, value)
select 'event.dlq.overflow', '100' where not exists (select from public.dot_config where key = 'event.dlq.overflow');
