-- Least privilege. Roles belong to the cluster, so they are created only where absent and stay when this step is
-- reverted.
--
--   gov_handoff_owner     owns the gates; it cannot log in and has no members
--   gov_handoff_worker    what the daemon needs: EXECUTE on its gates, SELECT on our own state
--   gov_handoff_operator  types, sources, dead letters
--   gov_handoff_observer  reads the views
--
-- SELECT on the address columns of the sources is granted by replication/roles.sql, which the owner of those tables runs.

do $$
declare
    r text;
begin
    foreach r in array array['gov_handoff_owner', 'gov_handoff_worker', 'gov_handoff_operator', 'gov_handoff_observer'] loop
        begin
            execute format('create role %I nologin', r);
        exception when duplicate_object or unique_violation then
            null;  -- here already, or made by another database of this cluster a moment ago
        end;
    end loop;
end
$$;

-- A role that is not a superuser can give a function away only if it can become the new owner, and the new owner may
-- create functions here. Both rights last only while migrating: `migrate` takes them back before it commits.
do $$
begin
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        execute format('grant gov_handoff_owner to %I', current_user);
        grant create on schema public, gov_handoff to gov_handoff_owner;
        -- This grant stays: the owner of the tables may register sources and activate types, and `migrate` itself does so
        -- next.
        execute format('grant gov_handoff_operator to %I', current_user);
    end if;
end
$$;

grant usage on schema public, gov_handoff to gov_handoff_owner, gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;

-- Only the gates may read and lock these tables.
grant select, update on gov_handoff.batches, gov_handoff.definitions to gov_handoff_owner;

grant select, insert on public.event_outbox to gov_handoff_owner;
grant select, insert, update on public.event_pending, public.iu_route_dead_letter, public.queue_heartbeat,
    public.system_issues, public.dot_config, public.event_type_registry to gov_handoff_owner;
grant insert on public.registry_changelog to gov_handoff_owner;
grant select, insert, update, delete on public.gov_worker_cursor, public.gov_worker_gap, public.gov_stream_position,
    public.gov_worker_frontier, public.gov_source_table, public.gov_source_version, public.gov_candidate_group, public.gov_candidate_state, public.gov_invalidation to gov_handoff_owner;

-- A live table may draw its id from a sequence that has privileges of its own.
do $$
declare
    s record;
begin
    for s in
        select distinct d.objid::regclass as seq
          from pg_depend d join pg_class c on c.oid = d.objid and c.relkind = 'S'
         where d.refobjid in ('public.registry_changelog'::regclass, 'public.system_issues'::regclass)
    loop
        execute format('grant usage on sequence %s to gov_handoff_owner', s.seq);
    end loop;
end
$$;

create view public.v_governance_source as
select c.worker_name, c.source_name, c.phase, c.last_watermark_ts, c.last_watermark_id, c.last_run_at, c.events_seen,
       c.attempts_written, c.dead_lettered,
       coalesce(g.open_ranges, 0) as open_ranges, coalesce(g.hot_ranges, 0) as hot_ranges,
       f.frontier::text as frontier, f.certified_at
  from public.gov_worker_cursor c
  left join lateral (select count(*) - 1 as open_ranges, count(*) filter (where w.hot) - 1 as hot_ranges
                       from public.gov_worker_gap w
                      where w.worker_name = c.worker_name and w.source_name = c.source_name) g on true
  left join public.gov_worker_frontier f on f.worker_name = c.worker_name and f.source_name = c.source_name;

create view public.v_governance_dead_letter_open as
select id, worker_name, route_code as source_name, idempotency_key, failure_code, failure_detail, attempts,
       event_snapshot, first_failed_at, last_failed_at
  from public.iu_route_dead_letter
 where event_domain = 'governance' and resolved_at is null;

create view public.v_governance_worker as
select h.executor_name as worker_name, h.lease_owner, (h.metadata ->> 'term')::bigint as term, h.last_tick_at,
       h.last_tick_status, h.ticks_total, h.metadata ->> 'mode' as mode, h.metadata ->> 'mode_reason' as mode_reason,
       (h.metadata ->> 'ttl_ms')::bigint as ttl_ms,
       h.lease_owner is not null
           and h.last_tick_at > clock_timestamp() - (h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond' as alive,
       (h.metadata ->> 'cadence_ms')::bigint as cadence_ms, (h.metadata ->> 'slot_budget')::bigint as slot_budget,
       (h.metadata ->> 'slot_rate')::float8 as slot_rate, (h.metadata ->> 'lag_ms')::bigint as lag_ms,
       h.metadata ->> 'pace_reason' as pace_reason, h.metadata -> 'beat' as beat
  from public.queue_heartbeat h
 where h.executor_name like 'gov\_%';

-- Dirty groups and objects, for observers: observers read views and no table.
create view public.v_governance_group as
select group_key, dims, dirty, dirty_reason, dirtied_at, generation, changes, last_occurred_at, scanned_at, stale_after,
       created_at
  from public.gov_candidate_group;

create view public.v_governance_candidate as
select candidate_key, ruleset_version, object_type, group_key, dirty, dirty_reason, dirtied_at, generation, last_occurred_at,
       input_quality_state, candidate_verdict, scanned_at, stale_after, created_at
  from public.gov_candidate_state;

do $$
declare
    f record;
begin
    for f in
        select p.oid::regprocedure as sig, p.proname
          from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname ~ '^gov_(batches|handoff|marks|groups|candidate|definition|watermark|clock|lease|severity|finding|audit|type|source|gap|stream|frontier)_'
    loop
        execute format('alter function %s owner to gov_handoff_owner', f.sig);
        execute format('revoke all on function %s from public', f.sig);
        if f.proname in ('gov_handoff_identity') then
            execute format('grant execute on function %s to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer', f.sig);
        elsif f.proname in ('gov_finding_raise', 'gov_finding_resolve', 'gov_finding_sustain', 'gov_lease_claim', 'gov_lease_renew',
                'gov_lease_resign', 'gov_handoff_apply', 'gov_handoff_apply_one', 'gov_handoff_probe', 'gov_gap_cool', 'gov_handoff_drain',
                'gov_stream_bind', 'gov_stream_confirm', 'gov_frontier_advance', 'gov_audit_note') then
            execute format('grant execute on function %s to gov_handoff_worker', f.sig);
        end if;
        -- An operator's replay of a dead letter hands off through the same gate as the daemon, under a lease of its own. A
        -- definition that would carry contents is refused by the operator's tool, which leaves a finding.
        if f.proname in ('gov_type_set_active', 'gov_handoff_drain', 'gov_source_put', 'gov_source_remove', 'gov_finding_raise',
                'gov_finding_resolve', 'gov_handoff_apply', 'gov_handoff_apply_one', 'gov_handoff_probe', 'gov_lease_resign') then
            execute format('grant execute on function %s to gov_handoff_operator', f.sig);
        end if;
    end loop;
end
$$;

grant select on public.gov_worker_cursor, public.gov_worker_gap, public.gov_stream_position, public.gov_worker_frontier,
    public.gov_source_version,
    public.event_type_registry, public.queue_heartbeat, public.dot_config to gov_handoff_worker, gov_handoff_operator;
grant select on public.event_pending, public.event_outbox, public.iu_route_dead_letter, public.system_issues,
    public.gov_candidate_group, public.gov_candidate_state, public.gov_invalidation to gov_handoff_operator, gov_handoff_worker;
grant select on public.v_governance_source, public.v_governance_dead_letter_open, public.v_governance_worker,
    public.v_governance_group, public.v_governance_candidate
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
-- `doctor` compares the steps that are in force with those of its own build.
grant select on public.gov_schema_version to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
