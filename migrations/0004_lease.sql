-- One writer per scope: the holder of the lease, and the fence that every effect commits behind.

-- A tick that lies ahead of the clock was written before the clock was set back. It is set to now. A live worker ticks
-- again soon. A dead worker is silent from now on, and not only once the clock has caught up. One second of tolerance
-- remains for two statements that read the clock in one order and write in the other.
create function gov_handoff.gov_clock_mend(p_worker text)
returns void language sql
set search_path = pg_catalog, pg_temp
as $$
    update public.queue_heartbeat set last_tick_at = clock_timestamp()
     where executor_name = p_worker and last_tick_at > clock_timestamp() + interval '1 second'
$$;

-- Takes the lease when it is free, expired by the database's clock, already held by this owner, or when its holder's
-- session is gone. The term grows with every change of hands, and also when its former holder claims an expired lease
-- again. So an instance that slept past its lease cannot pass for its successor, even if it is its own successor. What it
-- had in flight is fenced off.
--
-- The lease names the claiming session and its role. The holder counts as alive while that session is connected, or
-- another session of that role whose application_name ends in the last twelve characters of the owner's name. A process
-- that is killed loses its sessions at once, so a successor need not wait for the lease to expire. An advisory lock would
-- prove nothing, because any role may take one. A session of another role proves nothing either, whatever its
-- application_name.
--
-- `former` is the owner that the lease was taken from, if any: the successor ends that owner's remaining sessions.
create function gov_handoff.gov_lease_claim(p_worker text, p_owner text, p_ttl interval)
returns table (held boolean, term bigint, owner text, age_ms bigint, former text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into public.queue_heartbeat (executor_name, executor_kind, last_tick_at, ticks_total, metadata)
    values (p_worker, 'external_worker', clock_timestamp(), 0, '{"term": 0}')
    on conflict (executor_name) do nothing;

    perform gov_handoff.gov_clock_mend(p_worker);
    -- Within a transaction pg_stat_activity stays as it was when it was first read, unless the snapshot is cleared.
    perform pg_stat_clear_snapshot();
    update public.queue_heartbeat h
       set lease_owner = p_owner, last_tick_at = clock_timestamp(), last_tick_status = 'ok', updated_at = clock_timestamp(),
           metadata = h.metadata || jsonb_build_object(
               'ttl_ms', (extract(epoch from p_ttl) * 1000)::bigint,
               'term', coalesce((h.metadata ->> 'term')::bigint, 0)
                       + case when h.lease_owner = p_owner
                                   and h.last_tick_at > clock_timestamp()
                                         - coalesce((h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond', p_ttl)
                              then 0 else 1 end,
               'session_pid', pg_backend_pid(),
               'session_role', (select s.usesysid::bigint from pg_stat_get_activity(pg_backend_pid()) s),
               'former', case when h.lease_owner <> p_owner then h.lease_owner end)
     where h.executor_name = p_worker
       and (h.lease_owner is null or h.lease_owner = p_owner
            or h.last_tick_at <= clock_timestamp()
                 - coalesce((h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond', p_ttl)
            or not exists (
                select from pg_stat_activity a
                 where a.datname = current_database() and a.usesysid = (h.metadata ->> 'session_role')::oid
                   and (a.pid = (h.metadata ->> 'session_pid')::int
                        or right(a.application_name, 13) = ' ' || right(h.lease_owner, 12))));

    return query
        select h.lease_owner = p_owner, coalesce((h.metadata ->> 'term')::bigint, 0), h.lease_owner,
               (extract(epoch from clock_timestamp() - h.last_tick_at) * 1000)::bigint,
               case when h.lease_owner = p_owner then h.metadata ->> 'former' end
          from public.queue_heartbeat h where h.executor_name = p_worker;
end
$$;

-- The history of modes with one entry more, if the report tells of another mode or of another reason; the last twenty are kept.
-- It only adds to what the lease row says about its holder: no owner, term or time of the lease depends on it.
create function gov_handoff.gov_lease_modes(p_known jsonb, p_report jsonb)
returns jsonb language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case
               when p_report ->> 'mode' is null then '{}'::jsonb
               when p_report -> 'mode' = p_known -> 'mode'
                    and p_report ->> 'mode_reason' is not distinct from p_known ->> 'mode_reason'
                    and p_known ? 'modes' then '{}'::jsonb
               else jsonb_build_object('modes', (
                   select jsonb_agg(l.entry order by l.n)
                     from (select e.entry, e.n
                             from jsonb_array_elements(coalesce(p_known -> 'modes', '[]') || jsonb_build_object(
                                      'at', clock_timestamp(), 'mode', p_report -> 'mode', 'reason', p_report -> 'mode_reason'))
                                  with ordinality as e (entry, n)
                            order by e.n desc limit 20) l))
           end
$$;

-- Ticks the lease and publishes the instance's report (mode, reason, counters). False: the lease is lost or has expired.
-- To renew an expired lease would make valid again what must stay fenced off; it has to be claimed, under a new term.
create function gov_handoff.gov_lease_renew(p_worker text, p_owner text, p_term bigint, p_report jsonb default '{}')
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.queue_heartbeat
       set last_tick_at = clock_timestamp(), ticks_total = ticks_total + 1, updated_at = clock_timestamp(),
           metadata = metadata || (p_report - array['term', 'ttl_ms', 'session_pid', 'session_role', 'former', 'modes'])
               || gov_handoff.gov_lease_modes(metadata, p_report)
     where executor_name = p_worker and lease_owner = p_owner and (metadata ->> 'term')::bigint = p_term
       and last_tick_at > clock_timestamp() - (metadata ->> 'ttl_ms')::bigint * interval '1 millisecond';
    return found;
end
$$;

-- An operator replays dead letters under a lease of its own, through the gates that the daemon uses. Any role may read
-- who holds the daemon's lease, and in which term; so these gates check the role of the caller. They use the session's
-- user, because a gate runs as its owner. A session that has the worker's role as well, such as a superuser's, may use
-- either lease.
create function gov_handoff.gov_lease_stolen(p_worker text)
returns boolean language sql stable
return p_worker <> 'gov_handoff_dlq' and pg_has_role(session_user, to_regrole('gov_handoff_operator'), 'member')
       and not pg_has_role(session_user, to_regrole('gov_handoff_worker'), 'member');

create function gov_handoff.gov_lease_resign(p_worker text, p_owner text, p_term bigint)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
    end if;
    update public.queue_heartbeat
       set lease_owner = null, updated_at = clock_timestamp(), last_tick_status = 'resigned'
     where executor_name = p_worker and lease_owner = p_owner and (metadata ->> 'term')::bigint = p_term;
    return found;
end
$$;

-- The fence of every effect. It is an UPDATE, not a read: its row lock orders this commit against a takeover. Either this
-- commit comes first, or the fence sees that the lease is lost. It is called last, so that the lock is held only for the
-- commit itself. An expired lease counts as lost, even if no other instance took it: a process that was stopped for
-- longer than its time to live, by a debugger or a machine that slept, commits nothing of what it had begun. Only gates
-- may call it. (The gates that apply a batch contain the same update themselves, which is cheaper.)
create function gov_handoff.gov_lease_fence(p_worker text, p_owner text, p_term bigint)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if gov_handoff.gov_lease_stolen(p_worker) then
        raise exception 'the lease % is not an operator''s', p_worker using errcode = '42501';
    end if;
    update public.queue_heartbeat
       set last_tick_at = clock_timestamp(), ticks_total = ticks_total + 1, last_tick_status = 'ok'
     where executor_name = p_worker and lease_owner = p_owner and (metadata ->> 'term')::bigint = p_term
       and last_tick_at > clock_timestamp() - (metadata ->> 'ttl_ms')::bigint * interval '1 millisecond';
    if not found then
        raise exception 'lease % is no longer held by % in term %', p_worker, p_owner, p_term using errcode = 'GH001';
    end if;
end
$$;

-- Some gates serve the daemon, under its lease, and also an operator, who has no lease. Only a role that may act as an
-- operator may omit the lease. Otherwise the daemon's role could omit it, and a former holder would get through.
create function gov_handoff.gov_lease_or_operator(p_owner text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_owner is null and not pg_has_role(session_user, 'gov_handoff_operator', 'member') then
        raise exception 'without a lease this is an operator''s to do' using errcode = '42501',
            hint = 'grant gov_handoff_operator to the role, or let the daemon do it';
    end if;
end
$$;
