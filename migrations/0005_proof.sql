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

-- The latest certificate stands in the cursor's summary. History is an event, and an audit row of ours beside it.
create function public.gov_certificate_put(p_worker text, p_owner text, p_term bigint, p_cursor_worker text, p_source text,
                                           p_certificate jsonb, p_history boolean)
returns void language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_active boolean;
begin
    update gov_worker_cursor
       set last_run_summary = jsonb_set(last_run_summary, '{certificate}', p_certificate), updated_at = clock_timestamp(),
           phase = 'incremental'
     where worker_name = p_cursor_worker and source_name = p_source;
    if p_history then
        perform pg_advisory_xact_lock_shared(6748001, 1);
        select active into v_active from event_type_registry
         where event_domain = 'governance' and event_type = 'governance.handoff.certified';
        if v_active then
            insert into event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
                event_subject_table, canonical_address, actor_ref, source_system, payload_classification, safe_payload)
            values (gen_random_uuid(), 'governance', 'governance.handoff.certified', 'health', 'info', 'immediate',
                p_source, 'certificate:' || p_source, p_owner, 'gov-handoff', 'safe_metadata', p_certificate);
        else
            insert into event_pending (id, event_domain, event_type_hint, entity_table, canonical_address, actor_ref,
                capture_payload)
            values (gen_random_uuid(), 'governance', 'governance.handoff.certified', p_source, 'certificate:' || p_source,
                p_owner, p_certificate || '{"event_stream": "health", "event_severity": "info", "source_system": "gov-handoff"}');
        end if;
        perform gov_audit_write(p_owner, p_source, 'certified');
    end if;
    perform gov_lease_fence(p_worker, p_owner, p_term);
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

do $$
declare
    f regprocedure;
begin
    foreach f in array array['public.gov_certificate_put(text,text,bigint,text,text,jsonb,boolean)'::regprocedure,
        'public.gov_audit_checkpoint(text,text,bigint,text,text,jsonb)'::regprocedure,
        'public.gov_outbox_retire(text,timestamptz,int)'::regprocedure] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
        execute format('grant execute on function %s to gov_handoff_operator', f);
    end loop;
end
$$;
grant execute on function public.gov_certificate_put(text, text, bigint, text, text, jsonb, boolean),
    public.gov_audit_checkpoint(text, text, bigint, text, text, jsonb) to gov_handoff_worker;
grant delete on public.event_outbox to gov_handoff_owner;
grant select, insert, update on public.gov_retired_range, public.gov_retired_signal to gov_handoff_owner;
grant select on public.gov_retired_range, public.gov_retired_signal to gov_handoff_worker, gov_handoff_operator;

-- As in 0003, and knows of retention: what was handed off, proven and then removed is not read again when a source that was
-- removed is registered anew. Its ids are left out of the ranges that such a source starts with. (Keys without ranges are
-- looked up one by one, in gov_retired_signal.)
create or replace function public.gov_source_put(p_worker text, p_source text, p_definition jsonb, p_lo bigint, p_hi bigint)
returns text language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_old jsonb;
begin
    -- One definition at a time: two that register the same source would both find none.
    perform pg_advisory_xact_lock(6748001, 3);
    select metadata into v_old from gov_worker_cursor where worker_name = p_worker and source_name = p_source for update;
    if v_old = p_definition then
        return 'unchanged';
    end if;
    if v_old is not null then
        update gov_worker_cursor set metadata = p_definition, updated_at = clock_timestamp()
         where worker_name = p_worker and source_name = p_source;
    else
        insert into gov_worker_cursor (worker_name, source_name, metadata, phase)
        values (p_worker, p_source, p_definition, 'seeding');
    end if;
    if p_lo is not null and not exists (select from gov_worker_gap where worker_name = p_worker and source_name = p_source) then
        -- Numeric ranges, because the last bigint has no successor; between two that touch there is no integer left.
        insert into gov_worker_gap (worker_name, source_name, lo, hi)
        select p_worker, p_source, i.lo, i.hi
          from unnest(nummultirange(numrange(p_lo, p_hi, '[]'))
                      - coalesce((select range_agg(numrange(t.lo, t.hi, '[]')) from gov_retired_range t
                                   where t.source_name = p_source), '{}'::nummultirange)) as r (part)
         cross join lateral (select lower(r.part) + case when lower_inc(r.part) then 0 else 1 end as lo,
                                    upper(r.part) - case when upper_inc(r.part) then 0 else 1 end as hi) i
         where i.lo <= i.hi;
    end if;
    return case when v_old is null then 'added' else 'changed' end;
end
$$;
