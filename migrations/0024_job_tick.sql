-- The tick of the job queue, and its health.
--
-- gov_job_tick does what no executor's call does: due retries and starts, expired leases, deadlines, entries that were committed
-- behind the head of their lane, jobs that somebody inserted into job_queue directly, the archive. It is safe at any frequency
-- and from any number of sessions. Each part is bounded and stands alone: a part that fails is a finding, and the others go on.

-- One row: what the sweep has seen. `writers`: the transactions that wrote entries when the heads were noted. `page`: up to
-- which page job_queue was searched for jobs that no gate enqueued. `settled`: up to which dependency it was asked whether the
-- other job has succeeded, as job and other job.
create table public.job_sweep (
    one     boolean not null primary key default true check (one),
    writers text[]  not null default '{}',
    page    bigint  not null default 0,
    settled uuid[]  not null default '{}'
) with (fillfactor = 50);
comment on table public.job_sweep is 'one row: how far the sweeps of the tick are';
insert into public.job_sweep default values;

create table public.job_overdue (
    job_id      uuid        not null primary key,
    deadline_at timestamptz not null,
    raised_at   timestamptz not null default clock_timestamp()
);
comment on table public.job_overdue is 'jobs whose deadline passed before they ended; a row goes when the job has ended';

-- Rescue -----------------------------------------------------------------------------------------------------------

-- Jobs whose lease has expired, or whose executor is silent, leave their claims. A job that was only leased is queued again, one
-- that had begun waits for its next attempt; both cost the attempt. Token and state are read again under the lock of each
-- job, so a job that its executor finished or extended meanwhile is left alone.
--
-- The executors are locked first, because their counters change. One that another session holds is left for a later tick:
-- its session may stay idle in the middle of a claim, and the jobs of the others must not wait for it.
create function gov_handoff.gov_job_rescue(p_now timestamptz, p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_claims bigint[];
    v_lost record;
    v_tokens bigint[] := '{}';
    v_numbers int[] := '{}';
    v_silent text[] := array(
        select e.executor_id from public.job_executor e
          join public.queue_heartbeat h on h.executor_name = e.executor_id
         where h.last_tick_at < p_now - gov_handoff.gov_executor_patience());
    v_held text[];
begin
    with free as (
        select e.executor_id from public.job_executor e
         where e.executor_id = any (v_silent)
            or exists (select from public.job_claim c where c.executor_id = e.executor_id and c.look_at <= p_now)
         order by e.executor_id for update skip locked
    )
    select array(select e.executor_id from public.job_executor e except select f.executor_id from free f) into v_held;
    v_silent := array(select s.id from unnest(v_silent) as s (id) where s.id <> all (v_held));
    with due as (
        select c.token from public.job_claim c where c.look_at <= p_now and c.executor_id <> all (v_held)
         order by c.look_at limit p_limit for update skip locked
    )
    select coalesce(array_agg(d.token), '{}') into v_claims from due d;
    if v_silent <> '{}' then
        with lost as (
            select c.token from public.job_claim c
             where c.executor_id = any (v_silent) and c.token <> all (v_claims) order by c.token limit p_limit for update skip locked
        )
        select v_claims || coalesce(array_agg(l.token), '{}') into v_claims from lost l;
    end if;
    if v_claims = '{}' then
        return 0;
    end if;
    for v_lost in
        with lost as materialized (
            select q.id, q.status, q.attempts < q.max_attempts as again, c.token, c.executor_id
              from public.job_claim c cross join unnest(c.job_ids) as j (id)
              join public.job_queue q on q.id = j.id
             where c.token = any (v_claims) and q.lease_owner = c.executor_id || '#' || c.token
               and q.status in ('leased', 'in_progress') and (q.lease_until <= p_now or c.executor_id = any (v_silent))
             for update of q skip locked
        )
        select l.token, l.executor_id, count(*)::int as n,
               coalesce(array_agg(l.id) filter (where l.status = 'leased' and l.again), '{}') as back,
               coalesce(array_agg(l.id) filter (where l.status = 'leased' and not l.again), '{}') as dead,
               coalesce(array_agg(l.id) filter (where l.status = 'in_progress'), '{}') as begun
          from lost l group by l.token, l.executor_id
    loop
        if v_lost.back <> '{}' then
            update public.job_queue q
               set status = 'queued', lease_owner = null, lease_until = null, last_error = 'lease expired', updated_at = p_now
             where q.id = any (v_lost.back);
            perform gov_handoff.gov_job_log(v_lost.back, '{leased, queued}', 'gov_job_tick', 'lease expired', v_lost.token, v_lost.executor_id);
            perform gov_handoff.gov_job_make_ready(v_lost.back);
        end if;
        if v_lost.dead <> '{}' then
            perform gov_handoff.gov_job_dead_letter(v_lost.dead, 'lease expired', 'lease_expired', p_now, 'leased', 'gov_job_tick',
                v_lost.token, v_lost.executor_id);
        end if;
        if v_lost.begun <> '{}' then
            perform gov_handoff.gov_job_end_attempt(v_lost.begun, 'lease expired', true, 'lease_expired', p_now, 'gov_job_tick',
                v_lost.token, v_lost.executor_id);
        end if;
        v_tokens := v_tokens || v_lost.token;
        v_numbers := v_numbers || v_lost.n;
    end loop;
    if v_tokens <> '{}' then
        perform gov_handoff.gov_job_uncount(v_tokens, v_numbers, true);
    end if;
    -- A claim whose jobs have all left it is over. The others are looked at again when the first of their leases may have ended.
    with held as (
        select c.token, min(q.lease_until) as until
          from public.job_claim c cross join unnest(c.job_ids) as j (id)
          join public.job_queue q on q.id = j.id and q.lease_owner = c.executor_id || '#' || c.token
         where c.token = any (v_claims)
         group by c.token
    ), kept as (
        update public.job_claim c set look_at = greatest(h.until, p_now + interval '1 second') from held h where c.token = h.token
        returning c.token
    )
    delete from public.job_claim c where c.token = any (v_claims) and c.token not in (select h.token from held h);
    return (select coalesce(sum(u.n), 0) from unnest(v_numbers) as u (n));
end
$$;

-- Retries and starts that are due ----------------------------------------------------------------------------------

create function gov_handoff.gov_job_due(p_now timestamptz, p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_ids uuid[];
    v_back uuid[];
begin
    with due as (
        delete from public.job_deferred d
         where (d.due, d.job_id) in (select e.due, e.job_id from public.job_deferred e where e.due <= p_now
                                      order by e.due limit p_limit for update skip locked)
        returning d.job_id
    )
    select array_agg(d.job_id) into v_ids from due d;
    if v_ids is null then
        return 0;
    end if;
    with back as (
        update public.job_queue q set status = 'queued', next_run_at = null, updated_at = p_now
         where q.id = any (v_ids) and q.status = 'retry_waiting'
        returning q.id
    )
    select array_agg(b.id) into v_back from back b;
    perform gov_handoff.gov_job_log(v_back, '{retry_waiting, queued}', 'gov_job_tick', 'due');
    perform gov_handoff.gov_job_make_ready(array(
        select u.id from unnest(v_ids) as u (id)
         where not exists (select from public.job_dependency d where d.job_id = u.id)));
    return cardinality(v_ids);
end
$$;

-- Dependencies -----------------------------------------------------------------------------------------------------

-- Jobs that wait for a job that has succeeded. There are some where the one was enqueued while the other succeeded, in
-- transactions that did not see each other, and where somebody held the job that waits. A page of all dependencies at a time.
create function gov_handoff.gov_job_settle(p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_from uuid[];
    v_jobs uuid[];
    v_on uuid[];
    v_done uuid[];
begin
    select s.settled into v_from from public.job_sweep s for update skip locked;
    if not found then
        return 0;
    end if;
    select array_agg(p.job_id order by p.job_id, p.depends_on), array_agg(p.depends_on order by p.job_id, p.depends_on) into v_jobs, v_on
      from (select d.job_id, d.depends_on from public.job_dependency d
             where v_from = '{}' or (d.job_id, d.depends_on) > (v_from[1], v_from[2])
             order by d.job_id, d.depends_on limit p_limit) p;
    v_done := array(
        select distinct o.id from unnest(v_on) as o (id)
         where gov_handoff.gov_job_succeeded(o.id));
    if v_done <> '{}' then
        perform gov_handoff.gov_job_unblock(v_done);
    end if;
    if v_from <> '{}' or v_jobs is not null then
        update public.job_sweep s
           set settled = case when cardinality(v_on) = p_limit then array[v_jobs[p_limit], v_on[p_limit]] else '{}' end
         where s.settled is distinct from
               case when cardinality(v_on) = p_limit then array[v_jobs[p_limit], v_on[p_limit]] else '{}' end;
    end if;
    return cardinality(v_done);
end
$$;
comment on function gov_handoff.gov_job_settle(int) is 'frees jobs that wait for a job that has succeeded';

-- Deadlines --------------------------------------------------------------------------------------------------------

-- A deadline that passed before its job ended is a finding, once for each job. It is resolved when the job has ended.
create function gov_handoff.gov_job_deadlines(p_now timestamptz, p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_job record;
    v_raised bigint := 0;
begin
    for v_job in
        with due as (
            delete from public.job_deadline d
             where (d.deadline_at, d.job_id) in (select e.deadline_at, e.job_id from public.job_deadline e where e.deadline_at <= p_now
                                                  order by e.deadline_at limit p_limit for update skip locked)
            returning d.deadline_at, d.job_id
        )
        insert into public.job_overdue (job_id, deadline_at, raised_at)
        select d.job_id, d.deadline_at, p_now
          from due d join public.job_queue q on q.id = d.job_id
         where q.status in ('queued', 'leased', 'in_progress', 'retry_waiting')
        on conflict do nothing
        returning job_id, deadline_at
    loop
        perform gov_handoff.gov_finding_raise('job_overdue', 'job_overdue:' || v_job.job_id, 'high',
            jsonb_build_object('job_id', v_job.job_id, 'deadline_at', v_job.deadline_at), true);
        v_raised := v_raised + 1;
    end loop;
    for v_job in
        delete from public.job_overdue o
         where o.job_id in (select e.job_id from public.job_overdue e
                             where not exists (select from public.job_queue q where q.id = e.job_id
                                                  and q.status in ('queued', 'leased', 'in_progress', 'retry_waiting'))
                             limit p_limit for update skip locked)
        returning o.job_id
    loop
        perform gov_handoff.gov_finding_resolve('job_overdue:' || v_job.job_id, 'the job has ended');
    end loop;
    return v_raised;
end
$$;

-- Sweeps -----------------------------------------------------------------------------------------------------------

-- Entries that were committed behind the head of their lane get a new place at its end. A floor moves up to the head that was
-- noted earlier, once all transactions that could still show or give back an entry below it have ended and none is left.
create function gov_handoff.gov_job_rehome(p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_sweep record;
    v_lane record;
    v_settled boolean;
    v_n bigint;
    v_moved bigint := 0;
begin
    select s.writers into v_sweep from public.job_sweep s for update skip locked;
    if not found then
        return 0;
    end if;
    v_settled := not exists (
        select from pg_locks l where l.relation = 'public.job_ready'::regclass and l.mode = 'RowExclusiveLock'
           and l.virtualtransaction = any (v_sweep.writers));
    for v_lane in
        select l.lane_id, coalesce(f.floor, 0) as floor, coalesce(f.mark, 0) as mark,
               coalesce((select h.head from public.job_lane_head h where h.lane_id = l.lane_id order by h.head desc limit 1), 0) as head
          from public.job_lane l left join public.job_lane_floor f on f.lane_id = l.lane_id
    loop
        continue when v_lane.floor >= v_lane.head;
        with late as (
            delete from public.job_ready r
             where r.ctid = any (array(select e.ctid from public.job_ready e
                                        where e.lane_id = v_lane.lane_id and e.pos >= v_lane.floor and e.pos < v_lane.head
                                        order by e.pos limit p_limit for update skip locked))
            returning r.lane_id, r.job_id, r.ready_at
        )
        insert into public.job_ready (lane_id, job_id, ready_at) select l.lane_id, l.job_id, l.ready_at from late l;
        get diagnostics v_n = row_count;
        v_moved := v_moved + v_n;
        if v_settled then
            insert into public.job_lane_floor as f (lane_id, floor, mark)
            values (v_lane.lane_id, 0, v_lane.head)
            on conflict (lane_id) do update
                set mark = excluded.mark,
                    floor = case when exists (select from public.job_ready r where r.lane_id = v_lane.lane_id
                                                 and r.pos >= v_lane.floor and r.pos < v_lane.mark)
                                 then f.floor else f.mark end;
        end if;
    end loop;
    if v_settled then
        -- Noted after the heads: whoever wrote an entry below them either has ended, or holds this lock now.
        update public.job_sweep s
           set writers = array(select distinct l.virtualtransaction from pg_locks l
                                where l.relation = 'public.job_ready'::regclass and l.mode = 'RowExclusiveLock'
                                  and l.pid is distinct from pg_backend_pid());
    end if;
    return v_moved;
end
$$;

-- Looks through job_queue, some pages at a time, for queued jobs that no gate enqueued, and for cleaned jobs that are old enough
-- for the archive. job_queue has no index on its status, because an index on what changes would cost every transition.
create function gov_handoff.gov_job_page_sweep(p_now timestamptz, p_pages int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_from bigint;
    v_pages bigint := pg_relation_size('public.job_queue') / current_setting('block_size')::bigint;
    v_ids uuid[];
    v_found bigint := 0;
    v_keep interval := coalesce((select case when c.value ~ '^[0-9]{1,12}$' then c.value::bigint end from public.dot_config c
                                  where c.key = 'job.archive.after_ms'), 86400000) * interval '1 millisecond';
begin
    select s.page into v_from from public.job_sweep s for update skip locked;
    if not found then
        return 0;
    end if;
    if v_from >= v_pages then
        v_from := 0;
    end if;
    with direct as materialized (
        select q.id, q.actor_ref, q.created_at
          from public.job_queue q
         where q.ctid >= format('(%s,0)', v_from)::tid and q.ctid < format('(%s,0)', v_from + p_pages)::tid
           and q.status = 'queued'
           and (q.executor is null or q.executor = any ('{DOT, Agent, Hermes, Codex, PG_worker, external_worker, future_Kestra_adapter}'))
           and not exists (select from public.job_step t where t.job_ids @> array[q.id])
           -- An executor that speaks UTF-8 could not be sent it, nor what is claimed with it.
           and (getdatabaseencoding() = 'UTF8' or gov_handoff.gov_sent(to_jsonb(q)::text) is not null)
         for update of q skip locked
    ), noted as (
        insert into public.job_step (path, actor_ref, at, reason, job_ids)
        select '{NULL,queued}', d.actor_ref, p_now, 'inserted directly, found by the sweep', array_agg(d.id) from direct d group by d.actor_ref
    )
    select array_agg(d.id) into v_ids from direct d;
    if v_ids is not null then
        insert into public.job_deadline (deadline_at, job_id)
        select q.deadline_at, q.id from public.job_queue q where q.id = any (v_ids) and q.deadline_at is not null
        on conflict do nothing;
        perform gov_handoff.gov_job_free(v_ids);
        v_found := cardinality(v_ids);
    end if;
    with old as (
        delete from public.job_queue q
         where q.ctid >= format('(%s,0)', v_from)::tid and q.ctid < format('(%s,0)', v_from + p_pages)::tid
           and q.status = 'cleaned' and q.updated_at < p_now - v_keep
        returning q.id, q.idempotency_key, to_jsonb(q) - 'safe_payload' as job
    )
    insert into public.job_archive (job_id, idempotency_key, job, archived_at)
    select o.id, o.idempotency_key, o.job, p_now from old o on conflict do nothing;
    update public.job_sweep s set page = case when v_from + p_pages >= v_pages then 0 else v_from + p_pages end;
    return v_found;
end
$$;

-- Counters and heads that a newer row replaced.
create function gov_handoff.gov_job_tidy(p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_gone bigint;
begin
    delete from public.job_running r
     where r.ctid = any (array(
        select o.ctid from public.job_subscription s
          cross join lateral (select m.seq from public.job_running m where m.subscription_id = s.subscription_id order by m.seq desc limit 1) n
          cross join lateral (select c.ctid from public.job_running c where c.subscription_id = s.subscription_id and c.seq < n.seq
                               order by c.seq desc limit p_limit) o
         limit p_limit * 10));
    get diagnostics v_gone = row_count;
    delete from public.job_lane_head h
     where h.ctid = any (array(
        select o.ctid from public.job_lane l
          cross join lateral (select m.head from public.job_lane_head m where m.lane_id = l.lane_id order by m.head desc limit 1) n
          cross join lateral (select c.ctid from public.job_lane_head c where c.lane_id = l.lane_id and c.head < n.head
                               order by c.head desc limit p_limit) o
         limit p_limit * 10));
    return v_gone;
end
$$;

-- The tick ---------------------------------------------------------------------------------------------------------

-- Everything that is due, at most p_limit of each kind. Returns what was done by part. A plain function for any scheduler: call
-- it as often as you like, from as many sessions as you like. Call it again at once when a part did p_limit.
create function gov_handoff.gov_job_tick(p_now timestamptz default clock_timestamp(), p_limit int default 1000)
returns jsonb language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A session that holds a row for long makes one part fail, which is a finding. It does not hold up the others.
set lock_timeout = '2s'
as $$
declare
    v_part text;
    v_n bigint;
    v_done jsonb := '{}';
begin
    foreach v_part in array array['rescued', 'due', 'settled', 'schedules', 'overdue', 'rehomed', 'found', 'tidied'] loop
        begin
            v_n := 0;
            case v_part
                when 'rescued' then v_n := gov_handoff.gov_job_rescue(p_now, p_limit);
                when 'due' then v_n := gov_handoff.gov_job_due(p_now, p_limit);
                when 'settled' then v_n := gov_handoff.gov_job_settle(p_limit);
                when 'schedules' then
                    -- Schedules are a later step of the migrations.
                    if to_regprocedure('gov_handoff.gov_schedule_tick(timestamptz,integer)') is not null then
                        v_n := gov_handoff.gov_schedule_tick(p_now, p_limit);
                    end if;
                when 'overdue' then v_n := gov_handoff.gov_job_deadlines(p_now, p_limit);
                when 'rehomed' then v_n := gov_handoff.gov_job_rehome(p_limit);
                when 'found' then v_n := gov_handoff.gov_job_page_sweep(p_now, p_limit);
                when 'tidied' then v_n := gov_handoff.gov_job_tidy(p_limit);
            end case;
            v_done := v_done || jsonb_build_object(v_part, coalesce(v_n, 0));
            perform gov_handoff.gov_finding_resolve('job_tick_failed:' || v_part, 'the part works again');
        exception when others then
            v_done := v_done || jsonb_build_object(v_part, null);
            perform gov_handoff.gov_finding_sustain('job_tick_failed', 'job_tick_failed:' || v_part, 'high',
                jsonb_build_object('part', v_part, 'sqlstate', sqlstate), interval '1 minute');
        end;
    end loop;
    return v_done;
end
$$;

-- Health -----------------------------------------------------------------------------------------------------------

-- Counts stop at 10,000: looking must not cost more the worse it is.
create view public.v_job_lane as
select l.lane_id, l.executor, l.job_kind, l.event_domain, l.priority, r.ready, r.oldest_ready_at,
       r.ready >= 10000 as ready_is_more
  from public.job_lane l
  cross join lateral (
       select count(*) as ready, min(e.ready_at) as oldest_ready_at
         from (select x.ready_at from public.job_ready x
                where x.lane_id = l.lane_id
                  and x.pos >= coalesce((select h.head from public.job_lane_head h where h.lane_id = l.lane_id
                                          order by h.head desc limit 1), 0)
                order by x.pos limit 10000) e) r;
comment on view public.v_job_lane is 'by lane: jobs that may be claimed now, counted up to 10,000, and the oldest of them';

create view public.v_executor_subscription_health as
select e.executor_id, e.executor_kind, e.role_name, s.job_kind, s.event_domain, s.priority_floor, s.max_parallel, s.enabled,
       case when not e.enabled then 'disabled'
            when h.last_tick_at is null then 'never_seen'
            when h.last_tick_at < clock_timestamp() - interval '1 millisecond' * coalesce(
                     (select case when c.value ~ '^[0-9]{1,8}$' then c.value::int end from public.dot_config c
                       where c.key = 'job.executor.silent_ms'), 60000) then 'silent'
            else 'alive' end as state,
       h.last_tick_at, coalesce(r.running, 0) as running, coalesce(r.claimed, 0) as claimed, coalesce(r.finished, 0) as finished,
       coalesce(r.rescued, 0) as rescued
  from public.job_executor e
  left join public.job_subscription s on s.executor_id = e.executor_id
  left join public.queue_heartbeat h on h.executor_name = e.executor_id
  left join lateral (select c.running, c.claimed, c.finished, c.rescued from public.job_running c
                      where c.subscription_id = s.subscription_id order by c.seq desc limit 1) r on true;
comment on view public.v_executor_subscription_health is 'each executor and subscription: alive or silent, running jobs, totals';

create view public.v_job_overdue as
select o.job_id, q.job_kind, q.event_domain, q.executor, q.status, o.deadline_at, o.raised_at
  from public.job_overdue o join public.job_queue q on q.id = o.job_id
 where q.status in ('queued', 'leased', 'in_progress', 'retry_waiting');
comment on view public.v_job_overdue is 'jobs whose deadline has passed and that have not ended';

create view public.v_queue_health as
select (select coalesce(sum(l.ready), 0)::bigint from public.v_job_lane l) as ready,
       (select min(l.oldest_ready_at) from public.v_job_lane l) as oldest_ready_at,
       (select coalesce(sum(v.running), 0)::bigint from public.v_executor_subscription_health v) as running,
       (select count(*) from (select from public.job_deferred limit 10000) d) as deferred,
       (select count(*) from (select from public.job_dependency limit 10000) d) as blocked_on,
       (select count(*) from (select from public.job_overdue limit 10000) o) as overdue,
       (select count(*) from (select from public.iu_route_dead_letter d where d.worker_name = 'job_queue' and d.resolved_at is null
                               limit 10000) d) as dead_letters_open,
       (select count(distinct v.executor_id) from public.v_executor_subscription_health v where v.state = 'alive') as executors_alive,
       (select count(distinct v.executor_id) from public.v_executor_subscription_health v where v.state = 'silent') as executors_silent,
       (select min(d.due) from public.job_deferred d) as next_due_at,
       (select min(d.deadline_at) from public.job_deadline d) as next_deadline_at;
comment on view public.v_queue_health is 'one row: the job queue as a whole; counts stop at 10,000 a lane';

-- The live system may have views of these names.
do $$
begin
    if to_regclass('public.v_iu_event_backlog') is null then
        create view public.v_iu_event_backlog as
        select p.event_domain, p.event_type_hint as event_type, count(*) as waiting, min(p.created_at) as oldest_at
          from (select e.event_domain, e.event_type_hint, (to_jsonb(e) ->> 'created_at')::timestamptz as created_at from public.event_pending e
                 where e.processed_at is null limit 100000) p
         group by p.event_domain, p.event_type_hint;
        comment on view public.v_iu_event_backlog is 'gov-handoff: events that wait in event_pending, counted up to 100,000';
    end if;
    if to_regclass('public.v_iu_route_dead_letter_open') is null then
        create view public.v_iu_route_dead_letter_open as
        select d.id, d.worker_name, d.event_ref, d.event_domain, d.event_type, d.route_code, d.failure_code, d.attempts,
               d.first_failed_at, d.last_failed_at
          from public.iu_route_dead_letter d where d.resolved_at is null;
        comment on view public.v_iu_route_dead_letter_open is 'gov-handoff: dead letters that nobody has decided about';
    end if;
end
$$;

-- The health of the queue, in the form that observers of all workers expect.
create function public.fn_queue_route_worker_health()
returns jsonb language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select jsonb_build_object(
                   'worker_name', 'gov_queue_tick',
                   'last_run_at', w.last_run_at,
                   'ageSeconds', floor(extract(epoch from clock_timestamp() - w.last_run_at)),
                   'backlog_count', q.ready,
                   'dead_letter_open', q.dead_letters_open,
                   'lease_active', coalesce(h.lease_owner is not null and h.last_tick_at > clock_timestamp()
                       - coalesce((h.metadata ->> 'ttl_ms')::bigint, 0) * interval '1 millisecond', false),
                   'lease_age_seconds', floor(extract(epoch from clock_timestamp() - h.last_tick_at)),
                   'running', q.running, 'deferred', q.deferred, 'overdue', q.overdue,
                   'oldest_ready_seconds', floor(extract(epoch from clock_timestamp() - q.oldest_ready_at)),
                   'executors', coalesce((select jsonb_agg(distinct jsonb_build_object('executor_id', v.executor_id, 'state', v.state,
                                     'last_tick_at', v.last_tick_at)) from public.v_executor_subscription_health v), '[]'))
          from public.v_queue_health q
          left join public.queue_heartbeat h on h.executor_name = 'gov_queue_tick'
          left join lateral (select max(c.last_run_at) as last_run_at from public.gov_worker_cursor c
                              where c.worker_name = 'gov_queue_tick') w on true);
end
$$;

comment on function gov_handoff.gov_job_tick(timestamptz, int) is 'does what is due in the job queue; safe at any frequency';
comment on function public.fn_queue_route_worker_health() is 'the health of the job queue and of its executors';

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_job_rescue(timestamptz,int)', 'gov_handoff.gov_job_due(timestamptz,int)', 'gov_handoff.gov_job_settle(int)',
        'gov_handoff.gov_job_deadlines(timestamptz,int)', 'gov_handoff.gov_job_rehome(int)', 'gov_handoff.gov_job_page_sweep(timestamptz,int)',
        'gov_handoff.gov_job_tidy(int)', 'gov_handoff.gov_job_tick(timestamptz,int)', 'public.fn_queue_route_worker_health()']::regprocedure[] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant execute on function gov_handoff.gov_job_tick(timestamptz, int) to gov_handoff_worker, gov_handoff_operator;
grant execute on function public.fn_queue_route_worker_health() to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
grant select, insert, update, delete on public.job_overdue to gov_handoff_owner;
grant select, update on public.job_sweep to gov_handoff_owner;
grant select on public.v_job_lane, public.v_executor_subscription_health, public.v_job_overdue, public.v_queue_health to gov_handoff_owner;
grant select on public.v_job_lane, public.v_executor_subscription_health, public.v_job_overdue, public.v_queue_health,
    public.v_iu_event_backlog, public.v_iu_route_dead_letter_open to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
-- The findings of the job queue are event types as well, inactive like the rest.
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.finding.' || t.kind, 'alert', false
  from unnest(array['job_dlq', 'job_overdue', 'job_tick_failed']) as t (kind)
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.finding.' || t.kind);
insert into public.dot_config (key, value)
select 'job.archive.after_ms', '86400000' where not exists (select from public.dot_config where key = 'job.archive.after_ms');
