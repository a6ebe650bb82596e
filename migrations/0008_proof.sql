-- The proof of no loss: certificates, resumable audits, and what retention took away.

-- What retention removed from the outbox, so that no audit takes it for missing and emits it again. Integer keys are kept
-- as ranges, because births are contiguous; the signals of other keys one by one.
create table public.gov_retired_range (
    source_name text   not null,
    lo          bigint not null,
    hi          bigint not null,
    retired_at  timestamptz not null default now(),
    primary key (source_name, lo),
    check (lo <= hi)
);
create table public.gov_retired_signal (
    id         uuid        primary key,
    retired_at timestamptz not null default now()
);

-- The history of certificates, for whoever looks on: the latest thousand of each source. As events they may be kept for
-- longer, but among millions of signals nothing finds them.
create table public.gov_certificate_log (
    source_name text        not null,
    taken_at    timestamptz not null,
    worker_name text        not null,
    certificate jsonb       not null,
    primary key (source_name, taken_at)
);
create index gov_certificate_log_taken on public.gov_certificate_log (taken_at);

-- The latest certificate stands in the cursor's summary. History is an event, and an audit row of ours beside it.
--
-- In the order of locks that applying a batch has: types, lease, cursor. (The server runs the parts of a WITH that nothing
-- refers to after the rest, so a batch updates its cursors behind the fence, whatever the text's order.) The other way round a
-- certificate and a batch of the stream waited for each other now and then, and one of them was ended for it. The fence is as
-- good at the start: its row stays locked to the commit, so a takeover waits for all of this.
create function public.gov_certificate_put(p_worker text, p_owner text, p_term bigint, p_cursor_worker text, p_source text,
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
        -- The totals that metrics are read from (0013), in the same commit: a certificate that is there was counted, one that
        -- is not was not. Behind the cursor's row, which a daemon and an audit that certify the same source both lock first,
        -- so that they take the totals in turn. A certificate that tells of repairs is always one for the history; that of a
        -- rehearsal never is, and is not counted either.
        insert into gov_repair_total as t (worker_name, source_name, reason, repaired)
        select p_cursor_worker, p_source, r.key, r.value::bigint
          from jsonb_each_text(coalesce(p_certificate -> 'repaired', '{}')) r
         where r.value::bigint > 0
         order by r.key
        on conflict (worker_name, source_name, reason) do update set repaired = t.repaired + excluded.repaired;
        insert into gov_certificate_log (source_name, taken_at, worker_name, certificate)
        values (p_source, coalesce((p_certificate ->> 'taken_at')::timestamptz, clock_timestamp()), p_cursor_worker,
                p_certificate)
        on conflict (source_name, taken_at) do update
            set worker_name = excluded.worker_name, certificate = excluded.certificate;
        delete from gov_certificate_log g
         where g.source_name = p_source
           and g.taken_at < (select min(k.taken_at) from (select taken_at from gov_certificate_log
                                                           where source_name = p_source
                                                           order by taken_at desc limit 1000) k);
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

-- Where a full audit stands: the last key it has checked and what it has counted so far, in one row and one commit. Both are
-- in the summary: the watermark columns of this row move with every repair, which may lie anywhere in a chunk.
create function public.gov_audit_checkpoint(p_worker text, p_owner text, p_term bigint, p_source text, p_after text,
                                            p_progress jsonb)
returns void language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
begin
    insert into gov_worker_cursor as c (worker_name, source_name, last_run_at, last_run_summary)
    values (p_worker, p_source, clock_timestamp(),
            jsonb_build_object('audit', p_progress || jsonb_build_object('after', p_after)))
    on conflict (worker_name, source_name) do update
        set last_run_at = clock_timestamp(), updated_at = clock_timestamp(),
            last_run_summary = jsonb_set(c.last_run_summary, '{audit}', excluded.last_run_summary -> 'audit');
    perform gov_lease_fence(p_worker, p_owner, p_term);
end
$$;

-- Removes up to p_limit old signals from the outbox and remembers whose they were. Nothing younger than the latest
-- certificate of its source goes: retention may only take what was proven first.
create function public.gov_outbox_retire(p_worker text, p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_n bigint;
begin
    perform pg_advisory_xact_lock(6748001, 2);
    create temp table if not exists pg_temp.gov_retired (id uuid, source text, key text, numbered boolean) on commit drop;
    truncate pg_temp.gov_retired;
    with gone as (
        delete from event_outbox e
         using (select o.id from event_outbox o
                  join gov_worker_cursor c on c.worker_name = p_worker and c.source_name = o.safe_payload ->> 'source'
                 where o.event_domain = 'governance' and o.event_subject_ref is not null and o.created_at < p_before
                   and o.created_at < (c.last_run_summary #>> '{certificate,taken_at}')::timestamptz
                 order by o.id limit p_limit) x
         where e.id = x.id
        returning e.id, e.safe_payload ->> 'source' as source, e.safe_payload ->> 'source_key' as key
    )
    insert into pg_temp.gov_retired
    select g.id, g.source, g.key, coalesce(c.metadata #>> '{id,type}' in ('int4', 'int8'), false)
      from gone g left join gov_worker_cursor c on c.worker_name = p_worker and c.source_name = g.source;
    get diagnostics v_n = row_count;

    insert into gov_retired_signal (id) select id from pg_temp.gov_retired where not numbered on conflict do nothing;

    -- Islands of consecutive keys; a key with several signals counts once. Ranges that touch are left as they are.
    insert into gov_retired_range (source_name, lo, hi)
    select source, min(key), max(key)
      from (select source, key, key - row_number() over (partition by source order by key) as island
              from (select distinct source, key::bigint as key from pg_temp.gov_retired where numbered) d) i
     group by source, island
    on conflict (source_name, lo) do update set hi = greatest(gov_retired_range.hi, excluded.hi);
    return v_n;
end
$$;

-- What we say about ourselves in the outbox: the history of certificates, heartbeats, announced findings. They are about no
-- row, so nothing has to be remembered of them; the latest certificate of each source stands in its cursor.
create function public.gov_notices_retire(p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_n bigint;
begin
    -- The same history; few enough to go at once, and counted where they were announced.
    delete from gov_certificate_log where taken_at < p_before;
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

do $$
declare
    f regprocedure;
begin
    foreach f in array array['public.gov_certificate_put(text,text,bigint,text,text,jsonb,boolean)'::regprocedure,
        'public.gov_audit_checkpoint(text,text,bigint,text,text,jsonb)'::regprocedure,
        'public.gov_outbox_retire(text,timestamptz,int)'::regprocedure,
        'public.gov_notices_retire(timestamptz,int)'::regprocedure] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant execute on function public.gov_outbox_retire(text, timestamptz, int), public.gov_notices_retire(timestamptz, int)
    to gov_handoff_operator;
grant execute on function public.gov_certificate_put(text, text, bigint, text, text, jsonb, boolean),
    public.gov_audit_checkpoint(text, text, bigint, text, text, jsonb) to gov_handoff_worker;
grant delete on public.event_outbox to gov_handoff_owner;
grant select, insert, update on public.gov_retired_range, public.gov_retired_signal to gov_handoff_owner;
grant select, insert, update, delete on public.gov_certificate_log to gov_handoff_owner;
grant select on public.gov_retired_range, public.gov_retired_signal to gov_handoff_worker, gov_handoff_operator;
