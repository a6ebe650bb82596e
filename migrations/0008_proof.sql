-- The proof of no loss: certificates, resumable audits, and the record of what retention removed.

-- What retention removed from the outbox, so that no audit takes it for missing and emits it again. Integer keys are kept
-- as ranges, because births are contiguous; a range says that no signal of its keys was left. Signals of other keys are
-- listed one by one. So are signals whose key still had other signals, captured or younger: a range would excuse those as
-- well.
create table public.gov_retired_range (
    source_name text   not null,
    lo          bigint not null,
    hi          bigint not null,
    -- When the last of these signals was recorded. A younger row with one of these keys is another row.
    recorded_at timestamptz not null default now(),
    primary key (source_name, lo),
    check (lo <= hi)
);
create table public.gov_retired_signal (
    id          uuid        primary key,
    source_name text,
    -- The key, where it is an integer.
    number      bigint,
    recorded_at timestamptz not null default now()
);
-- What these marks amount to, by source: written only by the gate that makes them, in the same commit. So a mark that was
-- entered past the gate shows, and so does one that was removed. Of ranges: how many keys, and every key twice, because lo..hi
-- then add up to (lo + hi) * (hi - lo + 1). Of signals: how many, and the last 42 bits of each id, which are those of a hash.
create table public.gov_retired_total (
    source_name text    primary key,
    keys        numeric not null default 0,
    key_sum     numeric not null default 0,
    signals     bigint  not null default 0,
    signal_sum  numeric not null default 0
);
create index gov_retired_signal_number on public.gov_retired_signal (source_name) where number is not null;

-- Keys that more than one row has had, by the subject reference that the key gives. The row that took such a key is
-- recorded under identities of its own. The signals of the row before it may disappear later: promoted, drained or
-- removed. So once a key is listed here, no new signal is recorded under the key's own identity. Otherwise the row that
-- took the key could be recorded under both identities.
create table public.gov_reused_key (
    subject     uuid primary key,
    source_name text not null
);

-- Every key that the last audit of a source found wrong, in the order in which it was found. The list has no limit, and
-- the auditing process does not hold it in memory. The names are those of the running audit or, after its end, of that
-- audit.
create table public.gov_audit_name (
    source_name text   not null,
    -- Every row, or those since the last certificate. An audit of one depth leaves the names of the other alone.
    depth       text   not null check (depth in ('full', 'recent')),
    verdict     text   not null check (verdict in ('missing', 'doubled', 'orphan')),
    n           bigint not null,
    key         text   not null,
    primary key (source_name, depth, verdict, n)
);

-- The history of certificates, for observers: the latest thousand of each source. As events they may be kept for longer,
-- but no index finds them among millions of signals.
create table public.gov_certificate_log (
    source_name text        not null,
    taken_at    timestamptz not null,
    worker_name text        not null,
    certificate jsonb       not null,
    primary key (source_name, taken_at)
);
create index gov_certificate_log_taken on public.gov_certificate_log (taken_at);

-- Notes that rows took these keys from other rows. The lock is exclusive: running batches end first, and every later
-- batch knows the keys. A signal under a key's own identity that is seen after this returns was recorded before it.
create function gov_handoff.gov_key_reused(p_worker text, p_owner text, p_term bigint, p_source text, p_subjects uuid[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
    end if;
    perform gov_handoff.gov_batches_alone();
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    insert into public.gov_reused_key (subject, source_name)
    select u.subject, p_source from unnest(p_subjects) as u (subject)
    on conflict do nothing;
end
$$;

-- The latest certificate stands in the cursor's summary. The history is an event, with an audit row of ours beside it.
--
-- The locks are taken in the order in which a batch takes them: types, lease, cursor. (The server runs the parts of a
-- WITH that nothing refers to after the rest. So a batch updates its cursors after the fence, whatever the order of the
-- text.) In the other order a certificate and a batch of the stream sometimes deadlocked, and the server cancelled one of
-- them. The fence holds as well at the start: its row stays locked until the commit, so a takeover waits for all of this.
--
-- A certificate speaks for the definition that mapped the rows it counts (p_version). If another one is in force by now,
-- the certificate is not kept: the pass is made again.
create function gov_handoff.gov_certificate_put(p_worker text, p_owner text, p_term bigint, p_cursor_worker text, p_source text,
                                           p_certificate jsonb, p_history boolean, p_version uuid)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_active boolean;
    v_event constant uuid := gen_random_uuid();
begin
    perform from gov_handoff.batches;
    perform gov_handoff.gov_definition_fence(array[p_version]);
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    -- The latest certificate is the one that reaches furthest. An audit speaks for the snapshot it began with, and the
    -- daemon may have certified beyond that since. A certificate of another server, or of transactions that do not exist
    -- yet (a backup was restored), blocks no other certificate. An audit of only a part of the rows is complete through
    -- no frontier and is never the latest.
    update public.gov_worker_cursor c
       set last_run_summary = case
               when p_certificate ? 'since' or coalesce(
                   c.last_run_summary #>> '{certificate,system_identifier}' = p_certificate ->> 'system_identifier'
                   and (c.last_run_summary #>> '{certificate,frontier}')::xid8 > (p_certificate ->> 'frontier')::xid8
                   and (c.last_run_summary #>> '{certificate,frontier}')::xid8 <= pg_snapshot_xmax(pg_current_snapshot()), false)
               then c.last_run_summary
               else jsonb_set(c.last_run_summary, '{certificate}', p_certificate) end,
           updated_at = clock_timestamp(), phase = 'incremental'
     where c.worker_name = p_cursor_worker and c.source_name = p_source;
    if p_history then
        -- The totals that metrics are read from (0013), in the same commit: every certificate that exists was counted,
        -- and no other. This comes after the cursor's row. A daemon and an audit that certify the same source both lock
        -- that row first, so they update the totals in turn. A certificate with repairs always goes to the history. The
        -- certificate of a selftest never does, and is not counted either.
        insert into public.gov_repair_total as t (worker_name, source_name, reason, repaired)
        select p_cursor_worker, p_source, r.key, r.value::bigint
          from jsonb_each_text(coalesce(p_certificate -> 'repaired', '{}')) r
         where r.value::bigint > 0
         order by r.key
        on conflict (worker_name, source_name, reason) do update set repaired = t.repaired + excluded.repaired;
        insert into public.gov_certificate_log (source_name, taken_at, worker_name, certificate)
        values (p_source, coalesce((p_certificate ->> 'taken_at')::timestamptz, clock_timestamp()), p_cursor_worker,
                p_certificate)
        on conflict (source_name, taken_at) do update
            set worker_name = excluded.worker_name, certificate = excluded.certificate;
        delete from public.gov_certificate_log g
         where g.source_name = p_source
           and g.taken_at < (select min(k.taken_at) from (select taken_at from public.gov_certificate_log
                                                           where source_name = p_source
                                                           order by taken_at desc limit 1000) k);
        select active into v_active from public.event_type_registry
         where event_domain = 'governance' and event_type = 'governance.handoff.certified';
        if v_active then
            insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, canonical_address, actor_ref, source_system, payload_classification, safe_payload)
            values (v_event, 'governance', 'governance.handoff.certified', 'health', 'info', 'immediate',
                p_source, 'certificate:' || p_source, p_owner, 'gov-handoff', 'safe_metadata', p_certificate);
            perform gov_handoff.gov_feed_note(array[v_event]);
        else
            -- While the type is inactive, possibly for years, only the latest certificate of each source waits. Two
            -- sessions that certify one source run one after the other, because the cursor's row is locked by now.
            delete from public.event_pending
             where event_domain = 'governance' and event_type_hint = 'governance.handoff.certified' and processed_at is null
               and entity_table = p_source;
            insert into public.event_pending (id, event_domain, event_type_hint, entity_table, canonical_address, actor_ref,
                capture_payload)
            values (gen_random_uuid(), 'governance', 'governance.handoff.certified', p_source, 'certificate:' || p_source,
                p_owner, p_certificate || '{"event_stream": "health", "event_severity": "info", "source_system": "gov-handoff"}');
        end if;
        perform gov_handoff.gov_audit_write(p_owner, p_source, 'certified');
    end if;
end
$$;

-- How much a count of an audit has grown since its last checkpoint.
create function gov_handoff.gov_audit_gain(p_summary jsonb, p_progress jsonb, p_count text)
returns bigint language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select greatest(coalesce((p_progress ->> p_count)::bigint, 0)
                    - coalesce((p_summary -> 'audit' ->> p_count)::bigint, 0), 0)
$$;

-- The summary of an audit after one more checkpoint: its place, the fields that every worker's summary has, and the result
-- of the last full audit that ended, which the next one does not overwrite before it ends too. A mere check is no full
-- audit: it repairs nothing.
create function gov_handoff.gov_audit_summary(p_summary jsonb, p_after text, p_progress jsonb, p_anew boolean)
returns jsonb language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_last jsonb := case when p_anew then '{}' else p_summary end;
    v_ends boolean := coalesce((p_progress ->> 'finished')::boolean, false);
begin
    return gov_handoff.gov_worker_summary(p_summary, gov_handoff.gov_audit_gain(v_last, p_progress, 'rows'),
               gov_handoff.gov_audit_gain(v_last, p_progress, 'repaired'), 0, p_anew, v_ends)
        || jsonb_build_object('audit', p_progress || jsonb_build_object('after', p_after))
        || case when v_ends and p_progress #>> '{terms,depth}' = 'full' and p_progress #>> '{terms,check}' = 'false'
               then jsonb_build_object('full_audit', jsonb_build_object('started_at', p_progress -> 'started_at',
                   'ended_at', clock_timestamp(), 'rows', p_progress -> 'rows', 'missing', p_progress -> 'missing',
                   'repaired', p_progress -> 'repaired', 'doubled', p_progress -> 'doubled', 'orphans', p_progress -> 'orphans'))
               else '{}' end;
end
$$;

-- Where an audit stands: the last key it checked, its counts and the names of what it counted, in one commit. So an audit
-- that resumes after a kill names each key once. Key and counts are in the summary, because the watermark columns of this
-- row move with every repair, which may lie anywhere in a chunk. An audit that starts over (p_anew) deletes the names of
-- the last one. An audit of recent rows is short and is not resumed; only its names are kept.
create function gov_handoff.gov_audit_checkpoint(p_worker text, p_owner text, p_term bigint, p_source text, p_depth text,
                                            p_after text, p_progress jsonb, p_anew boolean, p_verdict text[], p_key text[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_anew then
        delete from public.gov_audit_name where source_name = p_source and depth = p_depth;
    end if;
    if cardinality(p_key) > 0 then
        insert into public.gov_audit_name (source_name, depth, verdict, n, key)
        select p_source, p_depth, u.verdict,
               coalesce((select max(a.n) from public.gov_audit_name a
                          where a.source_name = p_source and a.depth = p_depth and a.verdict = u.verdict), 0) + u.n, u.key
          from unnest(p_verdict, p_key) with ordinality as u (verdict, key, n);
    end if;
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    if p_depth = 'full' then
        -- Whoever audits, the command or the worker: the place is stored under the worker's name.
        insert into public.gov_worker_cursor as c (worker_name, source_name, last_run_at, events_seen, attempts_written, last_run_summary)
        values ('gov_periodic_full_audit', p_source, clock_timestamp(), gov_handoff.gov_audit_gain('{}', p_progress, 'rows'),
                gov_handoff.gov_audit_gain('{}', p_progress, 'repaired'), gov_handoff.gov_audit_summary('{}', p_after, p_progress, true))
        on conflict (worker_name, source_name) do update
            set last_run_at = clock_timestamp(), updated_at = clock_timestamp(),
                events_seen = c.events_seen
                    + gov_handoff.gov_audit_gain(case when p_anew then '{}' else c.last_run_summary end, p_progress, 'rows'),
                attempts_written = c.attempts_written
                    + gov_handoff.gov_audit_gain(case when p_anew then '{}' else c.last_run_summary end, p_progress, 'repaired'),
                last_run_summary = gov_handoff.gov_audit_summary(c.last_run_summary, p_after, p_progress, p_anew);
    end if;
end
$$;

-- The end of an audit. Its certificate (none for `--check`) and the mark that it is over are one commit. An audit that is
-- killed before that resumes, reaches its end again and is certified then. So no audit is over unless its repairs stand
-- in a certificate and in the totals. The certificate comes first: it takes the locks that batches share, in the order in
-- which a batch takes them.
create function gov_handoff.gov_audit_finish(p_worker text, p_owner text, p_term bigint, p_source text, p_depth text,
                                        p_progress jsonb, p_cursor_worker text, p_certificate jsonb, p_version uuid)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_certificate is not null then
        perform gov_handoff.gov_certificate_put(p_worker, p_owner, p_term, p_cursor_worker, p_source, p_certificate, true, p_version);
    end if;
    perform gov_handoff.gov_audit_checkpoint(p_worker, p_owner, p_term, p_source, p_depth, null, p_progress, false, '{}', '{}');
end
$$;

-- Removes up to p_limit old signals from the outbox and remembers their keys. No signal that is younger than the latest
-- certificate of its source is removed: retention may only take what was certified. The lock lets no batch run meanwhile.
-- A batch that brings a row again would otherwise wait for this deletion and then record the row a second time.
--
-- One statement works on what another deleted, without a temporary table: that would belong to the caller, with any
-- triggers that the caller put on it.
create function gov_handoff.gov_outbox_retire(p_worker text, p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
    v_id uuid[];
    v_source text[];
    v_number bigint[];
    v_recorded timestamptz[];
begin
    perform gov_handoff.gov_batches_alone();
    with gone as (
        delete from public.event_outbox e
         using (select o.id, (c.last_run_summary #>> '{certificate,taken_at}')::timestamptz as certified from public.event_outbox o
                  join public.gov_worker_cursor c on c.worker_name = p_worker and c.source_name = o.safe_payload ->> 'source'
                 where o.event_domain = 'governance' and o.event_subject_ref is not null and o.created_at < p_before
                   and o.created_at < (c.last_run_summary #>> '{certificate,taken_at}')::timestamptz
                 order by o.id limit p_limit) x
         where e.id = x.id
        returning e.id, e.event_type as kind, e.safe_payload ->> 'source' as source, e.safe_payload ->> 'source_key' as key,
                  greatest(e.created_at, e.occurred_at) as recorded, x.certified
    )
    select count(*), array_agg(g.id), array_agg(g.source),
           -- A signal with an integer key is remembered by its number, with three exceptions, which are remembered by id: its key
           -- is not a number, so gov-handoff did not write it; its id is not the identity of its key, because its row took
           -- another row's key; its time lies after the certificate.
           array_agg(case when c.metadata #>> '{id,type}' in ('int4', 'int8') and g.key ~ '^-?[0-9]{1,19}$'
                               and g.key::numeric between -9223372036854775808 and 9223372036854775807
                               and g.id = gov_handoff.gov_handoff_identity(g.source, c.metadata #>> '{id,type}', g.key, g.kind)
                               and g.recorded <= g.certified
                          then g.key::bigint end),
           array_agg(g.recorded)
      into v_n, v_id, v_source, v_number, v_recorded
      from gone g left join public.gov_worker_cursor c on c.worker_name = p_worker and c.source_name = g.source;

    perform gov_handoff.gov_feed_retire(v_id) where v_n > 0;

    -- A capture of such a signal may still wait, when the row came again after its type was activated and was emitted
    -- then. The drain would emit the signal a second time.
    update public.event_pending p set processed_at = clock_timestamp()
     where p.id = any (v_id) and p.processed_at is null;

    with retired as materialized (
        select r.id, r.source, r.number, r.recorded
          from unnest(v_id, v_source, v_number, v_recorded) as r (id, source, number, recorded)
    ), keys as (
        -- The identities of one integer key are contiguous: only their last 42 bits differ (gov_handoff_identity). So the
        -- primary keys tell whether any signal of a key is left.
        select k.source, k.number, (k.head || to_hex(k.tail))::uuid as lo, (k.head || to_hex(k.tail | 4398046511103))::uuid as hi
          from (select d.source, d.number,
                       encode(substr(sha256(convert_to(d.source, 'UTF8')), 1, 2), 'hex')
                           || lpad(to_hex((d.k >> 32) & 4294967295), 8, '0') || '8' || lpad(to_hex((d.k >> 20) & 4095), 3, '0') as head,
                       (-9223372036854775808)::bigint | ((d.k & 1048575) << 42) as tail
                  from (select distinct r.source, r.number, r.number # (-9223372036854775808)::bigint as k
                          from retired r where r.number is not null) d) k
    ), whole as materialized (
        -- No signal of the key is left, recorded or waiting, and no dead letter of the key can still be replayed.
        select x.source, x.number
          from keys x
         where not exists (select from public.event_outbox o where o.id between x.lo and x.hi)
           and not exists (select from public.event_pending p where p.id between x.lo and x.hi and p.processed_at is null)
           -- Found by the idempotency key that dead letters of integer keys have (core::dead_letter::letter_key).
           and not exists (select from public.iu_route_dead_letter d
                            where d.event_domain = 'governance' and d.resolution is distinct from 'replayed'
                              and d.idempotency_key = replace(replace(x.source, '%', '%25'), ':', '%3A') || ':' || x.number)
    ), single as (
        insert into public.gov_retired_signal (id, source_name, number, recorded_at)
        select r.id, r.source, r.number, r.recorded
          from retired r left join whole w on w.source = r.source and w.number = r.number
         where w.number is null
        on conflict do nothing
        returning id, source_name
    ), stretch as materialized (
        -- Stretches of consecutive keys. Ranges that touch are not merged.
        select i.source, min(i.number) as lo, max(i.number) as hi, max(i.recorded) as recorded
          from (select w.source, w.number, w.recorded,
                       w.number - row_number() over (partition by w.source order by w.number) as island
                  from (select w.source, w.number, max(r.recorded) as recorded
                          from whole w join retired r on r.source = w.source and r.number = w.number
                         group by 1, 2) w) i
         group by i.source, i.island
    ), ranged as (
        insert into public.gov_retired_range as r (source_name, lo, hi, recorded_at)
        select s.source, s.lo, s.hi, s.recorded from stretch s
        on conflict (source_name, lo) do update
            set hi = greatest(r.hi, excluded.hi), recorded_at = greatest(r.recorded_at, excluded.recorded_at)
    )
    -- A statement sees the ranges as they were before it, so what a range grew by is known here.
    insert into public.gov_retired_total as t (source_name, keys, key_sum, signals, signal_sum)
    select a.source, sum(a.keys), sum(a.key_sum), sum(a.signals), sum(a.signal_sum)
      from (select s.source, g.hi - g.lo + 1, (g.lo + g.hi) * (g.hi - g.lo + 1), 0, 0
              from stretch s
              left join public.gov_retired_range r on r.source_name = s.source and r.lo = s.lo
             cross join lateral (select coalesce(r.hi::numeric + 1, s.lo) as lo, greatest(r.hi, s.hi)::numeric as hi) g
             union all
            select s.source_name, 0, 0, 1, ('x' || right(s.id::text, 12))::bit(48)::bigint & 4398046511103
              from single s) a (source, keys, key_sum, signals, signal_sum)
     group by a.source
    on conflict (source_name) do update
        set keys = t.keys + excluded.keys, key_sum = t.key_sum + excluded.key_sum, signals = t.signals + excluded.signals,
            signal_sum = t.signal_sum + excluded.signal_sum;
    return v_n;
end
$$;

-- Removes up to p_limit captures that were drained before p_before. A capture prevents a signal that is lost and repaired
-- from marking its groups again. So only captures whose signal is recorded, or was retired, are removed.
create function gov_handoff.gov_pending_retire(p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
begin
    delete from public.event_pending e
     using (select p.id from public.event_pending p
             where p.event_domain = 'governance' and p.processed_at < p_before
               and (p.entity_ref is null
                    or exists (select from public.event_outbox o where o.id = p.id)
                    or exists (select from public.gov_retired_signal r where r.id = p.id)
                    or exists (select from public.gov_retired_range r
                                where r.source_name = p.capture_payload ->> 'source'
                                  and case when p.capture_payload ->> 'source_key' ~ '^-?[0-9]{1,18}$'
                                           then (p.capture_payload ->> 'source_key')::bigint end between r.lo and r.hi))
             limit p_limit) x
     where e.id = x.id;
    get diagnostics v_n = row_count;
    return v_n;
end
$$;

-- Removes gov-handoff's own events from the outbox: certificates, heartbeats, announced findings. They are not about
-- rows, so nothing has to be remembered of them. The latest certificate of each source stands in its cursor.
create function gov_handoff.gov_notices_retire(p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_n bigint;
    v_ids uuid[];
begin
    -- The same history. These rows are few enough to be deleted at once; they are counted where they were announced.
    delete from public.gov_certificate_log where taken_at < p_before;
    with gone as (
        delete from public.event_outbox e
         using (select o.id from public.event_outbox o
                 where o.event_domain in ('governance', 'system') and o.event_stream in ('health', 'alert')
                   and o.event_subject_ref is null and o.source_system = 'gov-handoff' and o.created_at < p_before
                 limit p_limit) x
         where e.id = x.id
        returning e.id
    )
    select array_agg(g.id), count(*) into v_ids, v_n from gone g;
    perform gov_handoff.gov_feed_retire(v_ids) where v_n > 0;
    return v_n;
end
$$;

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_certificate_put(text,text,bigint,text,text,jsonb,boolean,uuid)'::regprocedure,
        'gov_handoff.gov_audit_gain(jsonb,jsonb,text)'::regprocedure,
        'gov_handoff.gov_audit_summary(jsonb,text,jsonb,boolean)'::regprocedure,
        'gov_handoff.gov_audit_checkpoint(text,text,bigint,text,text,text,jsonb,boolean,text[],text[])'::regprocedure,
        'gov_handoff.gov_audit_finish(text,text,bigint,text,text,jsonb,text,jsonb,uuid)'::regprocedure,
        'gov_handoff.gov_outbox_retire(text,timestamptz,int)'::regprocedure,
        'gov_handoff.gov_pending_retire(timestamptz,int)'::regprocedure,
        'gov_handoff.gov_notices_retire(timestamptz,int)'::regprocedure,
        'gov_handoff.gov_key_reused(text,text,bigint,text,uuid[])'::regprocedure] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant execute on function gov_handoff.gov_outbox_retire(text, timestamptz, int), gov_handoff.gov_pending_retire(timestamptz, int),
    gov_handoff.gov_notices_retire(timestamptz, int) to gov_handoff_operator;
grant execute on function gov_handoff.gov_certificate_put(text, text, bigint, text, text, jsonb, boolean, uuid),
    gov_handoff.gov_audit_checkpoint(text, text, bigint, text, text, text, jsonb, boolean, text[], text[]),
    gov_handoff.gov_audit_finish(text, text, bigint, text, text, jsonb, text, jsonb, uuid) to gov_handoff_worker;
grant execute on function gov_handoff.gov_key_reused(text, text, bigint, text, uuid[]) to gov_handoff_worker, gov_handoff_operator;
grant delete on public.event_outbox to gov_handoff_owner;
grant select, insert, update on public.gov_retired_range, public.gov_retired_signal, public.gov_retired_total to gov_handoff_owner;
grant select, insert on public.gov_reused_key to gov_handoff_owner;
grant select, insert, update, delete on public.gov_certificate_log to gov_handoff_owner;
grant select, insert, delete on public.gov_audit_name to gov_handoff_owner;
grant select on public.gov_retired_range, public.gov_retired_signal, public.gov_retired_total, public.gov_reused_key, public.gov_audit_name
    to gov_handoff_worker, gov_handoff_operator;
