-- Which producers a source trusts. A row's `source_system` names its producer, or its `actor_ref`, if the definition says
-- so. The list is part of the source's definition, so a running daemon picks up a change as it does any other.

-- Moves up to p_limit signals that were captured as untrusted, and whose producer is trusted now, to the retry lane. The
-- retry lane reads each row again and hands it off like any row, under the identities it was captured with; only then are
-- its groups marked. At every moment the row is either captured or staged. Returns how many signals were moved and how
-- many rows were staged. Fewer than the limit means that nothing is left.
--
-- It works in bounded parts, because every batch waits for this lock. Between two parts a batch may be mapped by the new
-- list while captures of the old list still wait. The gate treats a signal captured as untrusted as not recorded (0003),
-- so it emits and marks, and the retry lane finds the signal recorded. The same happens when the signals of one row are
-- in two parts. The daemon promotes under its lease and is fenced; without a lease, the caller is an operator.
create function gov_handoff.gov_trust_promote(p_worker text, p_owner text, p_term bigint, p_limit int)
returns table (moved bigint, staged bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_finding record;
begin
    perform gov_handoff.gov_lease_or_operator(p_owner);
    -- Every batch holds this lock in shared mode, from before it captures until its commit. So a batch that was mapped by
    -- the old list has either committed, and its captures are seen below; or it begins after this commit, finds the
    -- finding resolved, and raises it again, which leads to the next promotion. Without the lock such a batch could find
    -- the finding open, raise nothing, and commit after this transaction. Its rows would stay captured indefinitely,
    -- without a finding.
    perform gov_handoff.gov_batches_alone();
    with due as (
        select p.id, c.metadata #>> '{id,type}' as id_type
          from public.event_pending p
          join public.gov_worker_cursor c on c.worker_name = p_worker and c.source_name = p.capture_payload ->> 'source'
         where p.event_domain = 'governance' and p.last_error = 'untrusted_source' and p.processed_at is null
           and coalesce(c.metadata #> '{trust,producers}' ? (p.capture_payload ->> coalesce(c.metadata #>> '{trust,by}', 'source_system')), true)
         limit p_limit
    ), released as (
        delete from public.event_pending p using due where p.id = due.id returning p.*, due.id_type
    ), entered as (
        insert into public.event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
            capture_payload, last_error)
        select distinct on (r.entity_table, r.entity_ref)
               gov_handoff.gov_handoff_identity(r.capture_payload ->> 'source', r.id_type, r.capture_payload ->> 'source_key',
                                    'governance.handoff.retry'),
               'governance', 'governance.handoff.retry', r.entity_table, r.entity_ref, left(r.canonical_address, 300),
               left(r.actor_ref, 300),
               jsonb_build_object('source', r.capture_payload ->> 'source', 'source_key', r.capture_payload ->> 'source_key',
                                  'canonical_address', left(r.canonical_address, 300)),
               'captured before its producer was trusted'
          from released r
         order by r.entity_table, r.entity_ref
        on conflict (id) do nothing
        returning 1
    )
    select (select count(*) from released), (select count(*) from entered) into moved, staged;

    if moved < p_limit then
        -- No capture of such a producer is left.
        for v_finding in
            select i.coalesce_key
              from public.system_issues i
              join public.gov_worker_cursor c on c.worker_name = p_worker and c.source_name = i.detail ->> 'source'
             where i.issue_kind = 'untrusted_source' and i.resolved_at is null
               and coalesce(c.metadata #> '{trust,producers}' ? (i.detail ->> 'producer'), true)
        loop
            perform gov_handoff.gov_finding_resolve(v_finding.coalesce_key, 'the producer is trusted');
        end loop;
    end if;
    if p_owner is not null then
        perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
    end if;
    return next;
end
$$;

-- Grants or revokes trust. The first part of what is trusted now is promoted in the same commit; the caller and the
-- daemon promote the rest.
create function gov_handoff.gov_trust_set(p_worker text, p_source text, p_producer text, p_trusted boolean, p_actor text)
returns table (changed boolean, promoted bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_actor text := coalesce(nullif(btrim(p_actor), ''), session_user);
    v_definition jsonb;
    v_known jsonb;
begin
    -- `batches` first (see gov_trust_promote), then `definitions`, then the cursor: the order in which a batch takes
    -- them.
    perform gov_handoff.gov_batches_alone();
    lock table gov_handoff.definitions in access exclusive mode;
    select metadata into v_definition from public.gov_worker_cursor
     where worker_name = p_worker and source_name = p_source and metadata ? 'id' for update;
    if v_definition is null then
        raise exception 'no source % is registered', p_source using errcode = 'GH003',
            hint = 'gov-handoff sources list shows the registered ones';
    end if;
    v_known := v_definition #> '{trust,producers}';
    if v_known is null then
        raise exception 'source % has no list of producers: every role that may write its table is trusted', p_source
            using errcode = 'GH003', hint = 'give it a list, trust = { producers = [...] }, with gov-handoff sources apply';
    end if;
    changed := (v_known ? p_producer) <> p_trusted;
    promoted := 0;
    if changed then
        v_known := case when p_trusted then v_known || to_jsonb(p_producer) else v_known - p_producer end;
        update public.gov_worker_cursor
           set metadata = jsonb_set(v_definition, '{trust,producers}', v_known), updated_at = clock_timestamp()
         where worker_name = p_worker and source_name = p_source;
        perform gov_handoff.gov_source_renew(p_worker, p_source, null);
        perform gov_handoff.gov_audit_write(v_actor, p_source,
            case when p_trusted then 'trust_granted:' else 'trust_revoked:' end || left(p_producer, 100));
    end if;
    if p_trusted then
        select t.staged into promoted from gov_handoff.gov_trust_promote(p_worker, null, null, 5000) t;
    end if;
    return next;
end
$$;

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_trust_promote(text,text,bigint,int)'::regprocedure,
        'gov_handoff.gov_trust_set(text,text,text,boolean,text)'::regprocedure] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
        execute format('grant execute on function %s to gov_handoff_operator', f);
    end loop;
end
$$;
-- The daemon promotes what a batch captured while the list was changed. It cannot grant trust.
grant execute on function gov_handoff.gov_trust_promote(text,text,bigint,int) to gov_handoff_worker;
