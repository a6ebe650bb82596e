-- What gov-handoff reports about itself: findings, which are also events, and rows in the changelog.

-- Findings ---------------------------------------------------------------------------------------------------------

create function gov_handoff.gov_severity_rank(p_severity text)
returns int language sql immutable
return coalesce(array_position(array['info', 'warning', 'high', 'critical'], p_severity), 0);

-- Announces a finding as an event, if its type is active. The event carries the address of the issue, not its detail. It
-- has no subject reference, because it is not about a row; so audits and retention ignore it. The sources exclude these
-- event domains, so it does not come back as a handoff. If a live outbox rejects the event, the finding must stand all
-- the same.
create function gov_handoff.gov_finding_emit(p_kind text, p_key text, p_severity text, p_state text, p_occurrences bigint)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
begin
    with said as (
        insert into public.event_outbox (id, event_domain, event_type, event_stream, event_severity, delivery_lane,
            event_subject_table, canonical_address, actor_ref, source_system, payload_classification, safe_payload)
        select gen_random_uuid(), t.event_domain, t.event_type, t.event_stream,
               case p_severity when 'critical' then 'critical' when 'info' then 'info' else 'warning' end, 'immediate',
               'system_issues', 'finding:' || left(p_key, 500), 'gov-handoff', 'gov-handoff', 'safe_metadata',
               jsonb_build_object('finding', p_kind, 'coalesce_key', left(p_key, 500), 'severity', p_severity,
                   'state', p_state, 'occurrences', p_occurrences)
          from public.event_type_registry t
         where t.active
           -- A selftest announces nothing.
           and p_key not like '%gov\_handoff\_selftest%'
           and (t.event_domain = 'governance' and t.event_type = 'governance.finding.' || p_kind
                or t.event_domain = 'system' and t.event_type = 'queue_worker_silent' and p_kind = 'queue_worker_silent')
        returning id
    )
    select array_agg(s.id) into v_ids from said s;
    if v_ids is not null then
        perform gov_handoff.gov_feed_note(v_ids);
    end if;
exception when others then
    raise warning 'the event of finding % was refused by the outbox (%)', p_kind, sqlstate;
end
$$;

-- One episode is one row. Its beginning and a higher severity are announced, not every occurrence.
create function gov_handoff.gov_finding_raise(p_kind text, p_key text, p_severity text, p_detail jsonb default '{}',
                                                    p_once boolean default false)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_old record;
    v_new record;
begin
    if p_once and exists (select from public.system_issues where coalesce_key = p_key and resolved_at is null) then
        return;
    end if;
    -- Locked, so that only one of several sessions that notice the same thing announces it.
    select i.severity, i.resolved_at is null as open into v_old from public.system_issues i where i.coalesce_key = p_key for update;
    insert into public.system_issues as i (issue_kind, coalesce_key, severity, source_system, detail)
    values (p_kind, p_key, p_severity, 'gov-handoff', p_detail)
    on conflict (coalesce_key) do update
        set occurrence_count = i.occurrence_count + 1,
            last_seen_at = clock_timestamp(),
            detail = excluded.detail,
            -- Severity may rise while the issue is open; a new episode starts at its own severity.
            severity = case when i.resolved_at is null and gov_handoff.gov_severity_rank(i.severity) > gov_handoff.gov_severity_rank(excluded.severity)
                            then i.severity else excluded.severity end,
            resolved_at = null,
            resolution = null
    returning i.severity, i.occurrence_count, i.xmax = 0 as inserted into v_new;
    if v_new.inserted or v_old.open is false then
        perform gov_handoff.gov_finding_emit(p_kind, p_key, v_new.severity, 'raised', v_new.occurrence_count);
    elsif gov_handoff.gov_severity_rank(v_new.severity) > gov_handoff.gov_severity_rank(v_old.severity) then
        perform gov_handoff.gov_finding_emit(p_kind, p_key, v_new.severity, 'risen', v_new.occurrence_count);
    end if;
end
$$;

create function gov_handoff.gov_finding_resolve(p_key text, p_resolution text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_was record;
begin
    update public.system_issues set resolved_at = clock_timestamp(), resolution = p_resolution
     where coalesce_key = p_key and resolved_at is null
    returning issue_kind, severity, occurrence_count into v_was;
    if not found then
        return false;
    end if;
    perform gov_handoff.gov_finding_emit(v_was.issue_kind, p_key, v_was.severity, 'resolved', v_was.occurrence_count);
    return true;
end
$$;

-- Raises a finding that this or another watcher may have raised before. It is counted again only after p_every, or when
-- it became worse. So the count says how long the cause has lasted, not how many watchers looked.
create function gov_handoff.gov_finding_sustain(p_kind text, p_key text, p_severity text, p_detail jsonb, p_every interval)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from public.system_issues
                    where coalesce_key = p_key and resolved_at is null and last_seen_at > clock_timestamp() - p_every
                      and gov_handoff.gov_severity_rank(severity) >= gov_handoff.gov_severity_rank(p_severity)) then
        perform gov_handoff.gov_finding_raise(p_kind, p_key, p_severity, p_detail);
    end if;
end
$$;

-- Audit rows -------------------------------------------------------------------------------------------------------

-- The changelog is a live table with rules of its own. If it rejects our row, that is a finding and stops nothing else. A
-- session that has it locked must not stop anything either: gates call this while they hold the lease's row, and every
-- batch waits for that row.
create function gov_handoff.gov_audit_write(p_owner text, p_source text, p_action text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
begin
    insert into public.registry_changelog (entity_type, entity_code, action, "timestamp", actor_ref, source_system)
    values ('governance_handoff', p_source, p_action, now() at time zone 'UTC', p_owner, 'gov-handoff');
exception when others then
    perform gov_handoff.gov_finding_raise('audit_row_refused', 'audit_row_refused:' || p_source, 'warning',
        jsonb_build_object('source', p_source, 'action', p_action, 'sqlstate', sqlstate));
end
$$;

create function gov_handoff.gov_audit_note(p_worker text, p_owner text, p_term bigint, p_source text, p_action text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform gov_handoff.gov_audit_write(p_owner, p_source, p_action);
    perform gov_handoff.gov_lease_fence(p_worker, p_owner, p_term);
end
$$;
