-- The rows that `gov-handoff selftest` leaves in our tables while it runs, and the one gate that removes them. The gate
-- can reach nothing else: it selects everything by the selftest's own worker, sources and kind.
--
-- One selftest at a time in a database: a lock that lasts as long as the transaction that took it.
create table gov_handoff.rehearsals ();
grant select, update on gov_handoff.rehearsals to gov_handoff_owner;

create function gov_handoff.gov_selftest_claim()
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Not `access exclusive`: that mode takes a transaction id, and certificates would wait for it.
    lock table gov_handoff.rehearsals in exclusive mode nowait;
    return true;
exception when lock_not_available then
    return false;
end
$$;
alter function gov_handoff.gov_selftest_claim() owner to gov_handoff_owner;
revoke all on function gov_handoff.gov_selftest_claim() from public;
grant execute on function gov_handoff.gov_selftest_claim() to gov_handoff_operator;

create function gov_handoff.gov_selftest_clean()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_worker constant text := 'gov_handoff_selftest';
    v_sources constant text[] := array['gov_handoff_selftest_int', 'gov_handoff_selftest_uuid'];
    v_captured bigint;
begin
    -- First, because it is the fence: a batch that is still running commits before this, or not at all.
    delete from public.queue_heartbeat where executor_name = v_worker;
    delete from public.event_pending
     where event_domain = 'governance'
       and event_type_hint in ('governance.handoff.selftest', 'governance.handoff.unmapped', 'governance.handoff.retry')
       and capture_payload ->> 'source' = any (v_sources);
    get diagnostics v_captured = row_count;
    delete from public.iu_route_dead_letter where worker_name = v_worker;
    delete from public.system_issues
     where source_system = 'gov-handoff' and coalesce_key like '%gov\_handoff\_selftest%';
    delete from public.gov_worker_gap where worker_name = v_worker;
    delete from public.gov_worker_frontier where worker_name = v_worker;
    delete from public.gov_worker_cursor where worker_name = v_worker;
    delete from public.gov_source_version where worker_name = v_worker;
    delete from public.gov_source_table where source_name = any (v_sources);
    delete from public.gov_source_boundary where source_name = any (v_sources);
    delete from public.gov_stream_position where slot_name like 'gov\_handoff\_selftest%';
    return v_captured;
end
$$;
alter function gov_handoff.gov_selftest_clean() owner to gov_handoff_owner;
revoke all on function gov_handoff.gov_selftest_clean() from public;
grant execute on function gov_handoff.gov_selftest_clean() to gov_handoff_operator;
grant delete on public.event_pending, public.iu_route_dead_letter, public.system_issues, public.queue_heartbeat
    to gov_handoff_owner;
