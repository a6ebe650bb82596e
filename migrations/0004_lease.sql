-- One writer per scope: who holds the lease, and the fence that every effect commits behind.

-- A tick that lies ahead of the clock was written before the clock was set back. It counts as one of now: a worker that lives
-- writes another soon, and one that does not is silent from here on, rather than once the clock has caught up. A second is
-- left to two statements that read the clock in another order than they write.
create function gov_handoff.gov_clock_mend(p_worker text)
returns void language sql
set search_path = pg_catalog, pg_temp
as $$
    update public.queue_heartbeat set last_tick_at = clock_timestamp()
     where executor_name = p_worker and last_tick_at > clock_timestamp() + interval '1 second'
$$;

-- Takes the lease when it is free, expired by the database's clock, already ours, or its holder's session is gone. The term
-- grows with every change of hands, and when an expired lease is claimed again by whoever had it: an instance that slept past
-- its lease cannot pass for its successor, even where that is itself, and what it had in flight is fenced off.
--
-- Whoever claims keeps the claiming session open, and with it a lock that says so. A process that is killed loses its
-- sessions at once: a successor need not wait for the lease to expire. One that only lost its connection may be overtaken
-- too, and the fence then turns it away like any other former holder.
create function gov_handoff.gov_lease_claim(p_worker text, p_owner text, p_ttl interval)
returns table (held boolean, term bigint, owner text, age_ms bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Before the claim: nobody may find us the holder and our lock free.
    perform pg_advisory_lock_shared(6748002, hashtext(p_owner));
    insert into public.queue_heartbeat (executor_name, executor_kind, last_tick_at, ticks_total, metadata)
    values (p_worker, 'external_worker', clock_timestamp(), 0, '{"term": 0}')
    on conflict (executor_name) do nothing;

    perform gov_handoff.gov_clock_mend(p_worker);
    update public.queue_heartbeat h
       set lease_owner = p_owner, last_tick_at = clock_timestamp(), last_tick_status = 'ok', updated_at = clock_timestamp(),
           metadata = h.metadata || jsonb_build_object(
               'ttl_ms', (extract(epoch from p_ttl) * 1000)::bigint,
               'term', coalesce((h.metadata ->> 'term')::bigint, 0)
                       + case when h.lease_owner = p_owner
                                   and h.last_tick_at > clock_timestamp()
                                         - coalesce((h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond', p_ttl)
                              then 0 else 1 end)
     where h.executor_name = p_worker
       and (h.lease_owner is null or h.lease_owner = p_owner
            or h.last_tick_at <= clock_timestamp()
                 - coalesce((h.metadata ->> 'ttl_ms')::bigint * interval '1 millisecond', p_ttl)
            or pg_try_advisory_xact_lock(6748002, hashtext(h.lease_owner)));

    return query
        select h.lease_owner = p_owner, coalesce((h.metadata ->> 'term')::bigint, 0), h.lease_owner,
               (extract(epoch from clock_timestamp() - h.last_tick_at) * 1000)::bigint
          from public.queue_heartbeat h where h.executor_name = p_worker;
end
$$;

-- Ticks the lease and publishes what the instance says of itself (mode, reason, counters). False: the lease is gone, or it has
-- expired. Renewing that would make fresh again what must stay fenced off; it has to be claimed, under a new term.
create function gov_handoff.gov_lease_renew(p_worker text, p_owner text, p_term bigint, p_report jsonb default '{}')
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.queue_heartbeat
       set last_tick_at = clock_timestamp(), ticks_total = ticks_total + 1, updated_at = clock_timestamp(),
           metadata = metadata || (p_report - 'term' - 'ttl_ms')
     where executor_name = p_worker and lease_owner = p_owner and (metadata ->> 'term')::bigint = p_term
       and last_tick_at > clock_timestamp() - (metadata ->> 'ttl_ms')::bigint * interval '1 millisecond';
    return found;
end
$$;

-- An operator replays letters under a lease of its own, by the gates that the daemon uses. Who holds the daemon's lease, and in
-- which term, anybody may read; so these gates ask who speaks. By the session's user: a gate runs as its owner. A session
-- that is the worker as well, as a superuser's is, may be either.
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

-- The fence of every effect. It is an UPDATE, not a read: its row lock orders us against a takeover, so either our commit
-- comes first or we see that the lease is gone. It is called last, so that the lock is held only for the commit itself. An
-- expired lease is gone too, whether anybody took it or not: a process that was stopped past its time to live, by a debugger
-- or a machine that slept, commits nothing of what it had begun.
-- Called by gates only, and nobody else may. (The gates that apply a batch write the same update out, which is cheaper.)
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

-- Some gates are the daemon's, under its lease, and an operator's, who has none. Only those who may act as an operator may do
-- without: the daemon's role could otherwise leave its lease out, and a former holder would pass.
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
