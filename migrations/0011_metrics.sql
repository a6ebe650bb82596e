-- What metrics are read from: totals that outlive certificates and daemons, and what waits, at a bounded cost.

-- Repairs by source and reason since the beginning. The history of certificates is retired, and the latest certificate tells
-- of its own pass only; a counter must not go down for either. Not bound to the cursor: a source that is removed and
-- registered again goes on counting.
create table public.gov_repair_total (
    worker_name text   not null,
    source_name text   not null,
    reason      text   not null,
    repaired    bigint not null,
    primary key (worker_name, source_name, reason),
    -- A word of ours, and nothing that could have come out of a row.
    constraint gov_repair_total_reason_is_a_word check (reason ~ '^[a-z_]{1,40}$'),
    constraint gov_repair_total_positive check (repaired > 0)
);

-- As in 0010, and adds what the certificate tells of to the totals, in the same commit: a certificate that is there was
-- counted, one that is not was not. Behind the cursor's row, which a daemon and an audit that certify the same source both
-- lock first, so that they take the totals in turn. A certificate that tells of repairs is always one for the history; that
-- of a rehearsal never is, and is not counted either.
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
        insert into gov_repair_total as t (worker_name, source_name, reason, repaired)
        select p_cursor_worker, p_source, r.key, r.value::bigint
          from jsonb_each_text(coalesce(p_certificate -> 'repaired', '{}')) r
         where r.value::bigint > 0
         order by r.key
        on conflict (worker_name, source_name, reason) do update set repaired = t.repaired + excluded.repaired;
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
end
$$;

create view public.v_governance_repair as
select worker_name, source_name, reason, repaired from public.gov_repair_total;

-- What waits, by type. Types ship inactive, so millions may wait, and somebody looks every few seconds: each type is counted to
-- ten thousand and no further, and the types themselves are found by leaping along the index of what is open.
create view public.v_governance_captured as
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
select h.event_type, n.waiting
  from hint h
 cross join lateral (select count(*) as waiting
                       from (select from public.event_pending p
                              where p.processed_at is null and p.event_type_hint = h.event_type
                                and p.event_domain = 'governance'
                              limit 10000) few) n
 where h.event_type is not null and n.waiting > 0;

grant select, insert, update on public.gov_repair_total to gov_handoff_owner;
grant select on public.v_governance_repair, public.v_governance_captured
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
