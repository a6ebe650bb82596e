-- Jobs: work to be done, in nine states. The tables beside the live job_queue, the roles, and the gates.
--
-- public.job_queue is the truth about a job and keeps the shape of the live system. Everything that a claim has to search
-- is in narrow tables of our own:
--
--   job_ready      one entry for each job that may be claimed now. Entries are inserted and deleted, never changed.
--   job_deferred   jobs that wait for a time: a start time, or the next attempt.
--   job_dependency jobs that wait for other jobs.
--   job_claim      one row for each claim: who took which jobs, under which token.
--   job_step       the log: one row for each statement that moved jobs.
--   job_running    how many jobs run under a subscription. A new row for each change; the newest one counts.
--
-- What keeps this fast while another session holds a snapshot, so that the server can remove no dead row: no gate walks
-- over dead rows. A claim starts at the head of its lane (job_lane_head) and not at the first entry that ever was. The
-- head and the counters are appended and read from the end of an index. No column that changes is in an index of
-- job_queue. An entry that commits behind the head is found by the next claim that would otherwise go short, and moved to the
-- end by the tick.
--
-- An entry of job_ready is a hint. Whether a job can be claimed is decided by its row in job_queue. So an entry that is
-- out of date costs a look and does no harm.
--
-- Locks, in this order: batches, rows of job_queue (by id where several), the row of the executor, rows of the tick. The row of
-- the executor is locked before its counters are read, so max_parallel is exact.

do $$
declare
    r text;
begin
    foreach r in array array['gov_handoff_producer', 'gov_handoff_executor'] loop
        begin
            execute format('create role %I nologin', r);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;
end
$$;

-- States -----------------------------------------------------------------------------------------------------------

-- The one table of legal transitions. The trigger gov_job_transitions is made of it.
create table public.job_transition_rule (
    from_status text not null,
    to_status   text not null,
    gates       text not null,
    primary key (from_status, to_status)
);
comment on table public.job_transition_rule is 'the legal transitions of a job, and the gates that make them';
insert into public.job_transition_rule (from_status, to_status, gates) values
    ('queued', 'leased', 'fn_job_claim'),
    ('queued', 'cancelled', 'fn_job_cancel, fn_job_supersede'),
    ('leased', 'in_progress', 'fn_job_start, fn_job_claim'),
    ('leased', 'queued', 'fn_job_release, gov_job_tick'),
    ('leased', 'dead_letter', 'gov_job_tick'),
    ('leased', 'cancelled', 'fn_job_cancel, fn_job_supersede'),
    ('in_progress', 'succeeded', 'fn_job_complete'),
    ('in_progress', 'retry_waiting', 'fn_job_fail, gov_job_tick'),
    ('in_progress', 'failed', 'fn_job_fail, gov_job_tick'),
    ('in_progress', 'queued', 'fn_job_release'),
    ('in_progress', 'cancelled', 'fn_job_cancel, fn_job_supersede'),
    ('retry_waiting', 'queued', 'gov_job_tick'),
    ('retry_waiting', 'cancelled', 'fn_job_cancel, fn_job_supersede'),
    ('failed', 'dead_letter', 'fn_job_fail, gov_job_tick'),
    ('failed', 'cleaned', 'fn_job_clean'),
    ('dead_letter', 'queued', 'fn_job_redrive'),
    ('dead_letter', 'cancelled', 'fn_job_cancel, fn_job_supersede'),
    ('dead_letter', 'cleaned', 'fn_job_clean'),
    ('succeeded', 'cleaned', 'fn_job_clean'),
    ('cancelled', 'cleaned', 'fn_job_clean');

-- The log: one row for each statement of a gate that moves jobs, for all of its jobs together. `path`: the states that they went
-- through, null first where they were enqueued. Rows are appended and never changed. public.job_transition shows them one by one.
--
-- A row of a hundred jobs costs a third of a hundred rows with entries of their own. The index takes its entries at once: with
-- `fastupdate` it would search a list of unsorted ones at each look, and save nothing (measured: 22 to 59 us against 3).
create table public.job_step (
    step        bigint      not null generated always as identity,
    path        text[]      not null,
    token       bigint,
    executor_id text,
    actor_ref   text        not null,
    at          timestamptz not null default clock_timestamp(),
    reason      text,
    job_ids     uuid[]      not null,
    constraint job_step_moves check (cardinality(path) > 1 and cardinality(job_ids) > 0)
);
comment on table public.job_step is 'the log of the job queue, append-only: a row for each statement that moved jobs';
create index job_step_of on public.job_step using gin (job_ids) with (fastupdate = off);

-- Executors and producers ------------------------------------------------------------------------------------------

create table public.job_executor (
    executor_id   text        not null primary key,
    executor_kind text        not null,
    -- The role that may act for this executor. Null: the role of its first heartbeat will be.
    role_name     name,
    enabled       boolean     not null default true,
    registered_by text        not null,
    registered_at timestamptz not null default clock_timestamp(),
    constraint job_executor_kind_known check (executor_kind in
        ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
    -- A lease names its executor and token as `executor#token`. Names of our own workers are not for executors.
    constraint job_executor_id_word check (executor_id ~ '^[^#[:space:]]{1,200}$' and executor_id !~ '^gov_' and executor_id !~* '(^|[^a-z])mot([^a-z]|$)')
);
comment on table public.job_executor is 'the registered executors, and the database role that may act for each';

create table public.job_producer (
    role_name     name        not null,
    executor_kind text        not null,
    granted_by    text        not null,
    granted_at    timestamptz not null default clock_timestamp(),
    primary key (role_name, executor_kind),
    constraint job_producer_kind_known check (executor_kind in
        ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter'))
);
comment on table public.job_producer is 'for which kinds of executor a role may enqueue jobs';

comment on table public.job_subscription is 'which jobs an executor may claim, and how many at once';

-- Lanes ------------------------------------------------------------------------------------------------------------

create sequence public.job_lane_id_seq as integer;
create table public.job_lane (
    lane_id      integer  not null primary key default nextval('public.job_lane_id_seq'),
    executor     text,
    job_kind     text     not null,
    event_domain text,
    priority     smallint not null,
    unique nulls not distinct (job_kind, event_domain, executor, priority),
    constraint job_lane_executor_known check (executor in
        ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter'))
);
comment on table public.job_lane is 'jobs of one kind, domain, executor kind and priority wait in one lane';
alter sequence public.job_lane_id_seq owned by public.job_lane.lane_id;

create sequence public.job_ready_pos_seq;
create table public.job_ready (
    lane_id  integer     not null,
    pos      bigint      not null default nextval('public.job_ready_pos_seq'),
    job_id   uuid        not null,
    ready_at timestamptz not null default clock_timestamp(),
    primary key (lane_id, pos)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
comment on table public.job_ready is 'the jobs that may be claimed now, in order, by lane';
alter sequence public.job_ready_pos_seq owned by public.job_ready.pos;

-- Where the claims of a lane begin. A head is appended, never changed: the highest one counts.
create table public.job_lane_head (
    lane_id integer not null,
    head    bigint  not null,
    primary key (lane_id, head)
);
comment on table public.job_lane_head is 'where the claims of a lane begin; the highest row counts';

-- Where the second look of a claim begins (fn_job_claim). Below the floor of a lane there is no entry, and none can appear: the
-- tick moves it to a head that it noted (`mark`), once every transaction that wrote entries at that moment has ended.
create table public.job_lane_floor (
    lane_id integer not null primary key,
    floor   bigint  not null,
    mark    bigint  not null,
    constraint job_lane_floor_order check (floor <= mark)
) with (fillfactor = 50);
comment on table public.job_lane_floor is 'below the floor of a lane there is no entry, and none can appear';

create table public.job_deferred (
    due    timestamptz not null,
    job_id uuid        not null,
    primary key (due, job_id)
);
comment on table public.job_deferred is 'jobs that wait for their start time or for their next attempt';

create table public.job_dependency (
    job_id     uuid not null,
    depends_on uuid not null,
    primary key (job_id, depends_on),
    constraint job_dependency_other check (job_id <> depends_on)
);
comment on table public.job_dependency is 'jobs that wait for another job to succeed; a row goes when it has';
create index job_dependency_waiting on public.job_dependency (depends_on);

create table public.job_deadline (
    deadline_at timestamptz not null,
    job_id      uuid        not null,
    primary key (deadline_at, job_id)
);
comment on table public.job_deadline is 'deadlines that have not passed yet';

-- Claims -----------------------------------------------------------------------------------------------------------

create sequence public.job_token_seq;
create table public.job_claim (
    token           bigint      not null primary key,
    executor_id     text        not null,
    subscription_id uuid        not null,
    job_ids         uuid[]      not null,
    claimed_at      timestamptz not null,
    -- When the tick looks at the jobs of this claim. A job's own lease is in job_queue.
    look_at         timestamptz not null,
    constraint job_claim_some check (cardinality(job_ids) > 0)
);
comment on table public.job_claim is 'who took which jobs, under which token; the token fences every later call';
create index job_claim_look on public.job_claim (look_at);

-- How many jobs run under a subscription, and how many did. A change appends a row, and the highest seq counts: while the
-- server can remove nothing, an updated row would be found through all its dead versions, and an appended one is found
-- first.
create table public.job_running (
    subscription_id uuid   not null,
    seq             bigint not null,
    running         bigint not null,
    claimed         bigint not null,
    finished        bigint not null,
    rescued         bigint not null,
    primary key (subscription_id, seq),
    constraint job_running_not_negative check (running >= 0)
);
comment on table public.job_running is 'jobs that run under a subscription, and totals; the row with the highest seq counts';

create table public.job_evidence (
    job_id   uuid        not null,
    token    bigint      not null,
    evidence jsonb       not null,
    at       timestamptz not null default clock_timestamp(),
    primary key (job_id, token),
    constraint job_evidence_signal_not_data check (not evidence ?| '{body, content, raw, vector, embedding, secret, token, password, ssn, personal_data}')
);
comment on table public.job_evidence is 'what an executor gave as evidence of a finished job: references, not contents';

create table public.job_archive (
    job_id          uuid        not null primary key,
    idempotency_key text        not null unique,
    job             jsonb       not null,
    archived_at     timestamptz not null default clock_timestamp()
);
comment on table public.job_archive is 'cleaned jobs that left job_queue; their keys stay taken';

-- The transitions of a job are found by its id through the index of the log; `seq` is their order.
create view public.job_transition as
select j.job_id, s.path[n.n] as from_status, s.path[n.n + 1] as to_status, s.token, s.executor_id, s.actor_ref, s.at, s.reason,
       s.step * 8 + n.n as seq
  from (select q.id as job_id from public.job_queue q union all select a.job_id from public.job_archive a) j
  join public.job_step s on s.job_ids @> array[j.job_id]
  cross join lateral generate_series(1, cardinality(s.path) - 1) as n (n);
comment on view public.job_transition is 'every transition of every job; from_status is null where a job was enqueued';

-- The enforcement --------------------------------------------------------------------------------------------------

-- Every update of job_queue, whoever makes it, is held against the legal transitions. A status changes through a gate and along
-- the table, or not at all. Inside a gate the current user is the gates' owner; no other role can become that. The gates write the
-- log in the same statement.
--
-- The condition of the trigger is the table of legal transitions, written out when it is created, so that a legal update costs a
-- comparison and no call. A claim that starts its jobs at once makes two transitions in one update, and logs both.
--
-- The trigger is the one object of ours on a live table. Without it a direct UPDATE could not be stopped.
create function gov_handoff.gov_job_transitions()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if old.id <> new.id then
        raise exception 'job % cannot change its id', old.id using errcode = 'GH003';
    elsif old.status = new.status then
        raise exception 'the lease and the attempts of job % are for gates', old.id using errcode = 'GH003';
    elsif exists (select from public.job_transition_rule r where r.from_status = old.status and r.to_status = new.status) then
        raise exception 'job %: % -> % outside its gate', old.id, old.status, new.status using errcode = 'GH003',
            hint = 'call the gate of the transition: see public.job_transition_rule';
    end if;
    raise exception 'job %: % -> % is not a legal transition', old.id, old.status, new.status using errcode = 'GH003',
        hint = 'the legal transitions are in public.job_transition_rule';
end
$$;
-- The server reads the condition anew for each statement, so it is kept short: two letters name a state.
do $$
declare
    v_legal text := (select string_agg(left(r.from_status, 2) || left(r.to_status, 2), ' ') from public.job_transition_rule r);
begin
    execute format($trigger$
        create trigger gov_job_transitions after update on public.job_queue for each row
          when (old.id <> new.id
                or case when current_user = 'gov_handoff_owner'
                        then old.status <> new.status and strpos(%L, left(old.status, 2) || left(new.status, 2)) = 0
                             and not (old.status = 'queued' and new.status = 'in_progress'
                                      and current_setting('gov_handoff.claim_starts', true) is not distinct from 'on')
                        else old.status <> new.status or old.attempts <> new.attempts
                             or old.lease_owner is distinct from new.lease_owner or old.lease_until is distinct from new.lease_until end)
          execute function gov_handoff.gov_job_transitions()$trigger$, v_legal);
end
$$;

-- Writes the log, for gates that do not do it in the statement of the update itself.
create function gov_handoff.gov_job_log(p_ids uuid[], p_path text[], p_actor text, p_reason text, p_token bigint default null,
                                        p_executor text default null)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_ids <> '{}' then
        insert into public.job_step (path, token, executor_id, actor_ref, reason, job_ids)
        values (p_path, p_token, p_executor, coalesce(nullif(btrim(p_actor), ''), session_user::text), nullif(left(p_reason, 2000), ''), p_ids);
    end if;
end
$$;

-- Enqueue ----------------------------------------------------------------------------------------------------------

-- Lets waiting executors know that there is work: one notification for each statement, off by dot_config. Losing it loses no
-- work, because executors also poll.
create function gov_handoff.gov_job_notify()
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from public.dot_config where key = 'job.notify' and value in ('off', 'false')) then
        perform pg_notify('gov_job', '');
    end if;
end
$$;

-- Puts jobs that may be claimed now into their lanes. A lane that another session has made and not committed is not waited
-- for, because that session may stay idle: its jobs are deferred, and the tick tries again.
create function gov_handoff.gov_job_make_ready(p_ids uuid[])
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '100ms'
as $$
declare
    v_ready bigint;
    v_new uuid[] := array(
        select q.id from public.job_queue q
         where q.id = any (p_ids) and q.status = 'queued'
           and not exists (select from public.job_lane l
                            where l.job_kind = q.job_kind and l.event_domain is not distinct from q.event_domain
                              and l.executor is not distinct from q.executor and l.priority = q.priority));
begin
    if v_new <> '{}' then
        begin
            insert into public.job_lane (executor, job_kind, event_domain, priority)
            select distinct q.executor, q.job_kind, q.event_domain, q.priority
              from public.job_queue q where q.id = any (v_new)
            on conflict do nothing;
        exception when lock_not_available then
            insert into public.job_deferred (due, job_id) select clock_timestamp(), n.id from unnest(v_new) as n (id)
            on conflict do nothing;
        end;
    end if;
    insert into public.job_ready (lane_id, job_id)
    select l.lane_id, q.id
      from unnest(p_ids) with ordinality as i (id, n)
      join public.job_queue q on q.id = i.id and q.status = 'queued'
      join public.job_lane l on l.job_kind = q.job_kind and l.event_domain is not distinct from q.event_domain
                            and l.executor is not distinct from q.executor and l.priority = q.priority
     order by i.n;
    get diagnostics v_ready = row_count;
    if v_ready > 0 then
        perform gov_handoff.gov_job_notify();
    end if;
    return v_ready;
end
$$;

-- The kinds of executors that the session may enqueue jobs for. An operator may enqueue for all.
create function gov_handoff.gov_job_grants()
returns text[] language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select case when pg_has_role(session_user, 'gov_handoff_operator', 'member')
                then '{DOT, Agent, Hermes, Codex, PG_worker, external_worker, future_Kestra_adapter}'::text[]
                else array(select p.executor_kind from public.job_producer p join pg_roles r on r.rolname = p.role_name
                            where pg_has_role(session_user, r.oid, 'member')) end);
end
$$;

-- Whether the session may enqueue jobs for this kind of executor.
create function public.fn_job_may_enqueue(p_executor text)
returns boolean language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(p_executor = any (gov_handoff.gov_job_grants()), false);
end
$$;

-- Enqueues many jobs in one statement. Items are objects with the parameters of fn_job_enqueue as keys (kind, key, executor,
-- domain, payload_ref, payload, priority, run_at, deadline_at, max_attempts, actor, correlation_id), and depends_on: an array of
-- the ids or keys of jobs that must succeed first. One answer for each item, in order: `done` with reason `known` where the key
-- was taken, which changes nothing; `refused` and why.
create function public.fn_job_enqueue_many(p_jobs jsonb)
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query select e.job_id, e.outcome, e.reason from gov_handoff.gov_job_enqueue(p_jobs, gov_handoff.gov_job_grants(), false) e;
end
$$;

-- The same with the kinds of executors that the caller may enqueue for. Schedules fire through it as well. Only they may use
-- the keys of scheduled jobs: whoever had such a key first would keep the job from being made.
create function gov_handoff.gov_job_enqueue(p_jobs jsonb, p_grants text[], p_scheduled boolean)
returns table (job_id uuid, outcome text, reason text) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    -- The ids of a statement are of version 7: the time, 44 random bits, and the number of the item. So ids that are made together are
    -- neighbours in every index, and a statement draws random bits once.
    v_prefix text := regexp_replace(lpad(to_hex((extract(epoch from v_now) * 1000)::bigint), 12, '0'), '^(.{8})(.{4})$', '\1-\2-7')
                     || regexp_replace(gen_random_uuid()::text, '^(...)(.{5})-.*-(....)-.*$', '\1-\3-\2');
    v_utf8 boolean := getdatabaseencoding() = 'UTF8';
    v_attempts int := gov_handoff.gov_job_setting('', 'max_attempts', 5);
    -- One look at the text of all items tells whether any payload could carry contents. Only then is each one searched. Where no
    -- item has a payload, the text is not made.
    v_screen boolean := jsonb_path_exists(p_jobs, '$[*].payload')
        and (lower(p_jobs::text) ~ '"(body|content|raw|vector|embedding|secret|token|password|ssn|personal_data)": '
             or strpos(substr(p_jobs::text, 2), '[') > 0);
    v_ids uuid[];
    v_keys text[];
    v_new uuid[];
    v_reasons text[];
    v_waits bigint;
    v_placed uuid[];
    v_bad text;
    v_kind text;
begin
    if jsonb_typeof(p_jobs) is distinct from 'array' then
        raise exception 'expected an array of jobs, found %', coalesce(jsonb_typeof(p_jobs), 'null') using errcode = 'GH003';
    end if;
    with item as materialized (
        select x.n, (v_prefix || lpad(to_hex(x.n), 7, '0'))::uuid as id, x.kind, x.key,
               x.executor, x.domain, x.payload_ref, coalesce(x.payload, '{}') as payload, coalesce(x.priority, 0) as priority,
               x.run_at, x.deadline_at, coalesce(x.max_attempts, v_attempts) as max_attempts,
               coalesce(nullif(btrim(x.actor), ''), session_user::text) as actor, x.correlation_id,
               x.depends_on is not null and jsonb_array_length(x.depends_on) > 0 as waits,
               case when not v_utf8 and gov_handoff.gov_sent(to_jsonb(x)::text) is null
                        then 'a character has no equivalent in UTF-8'
                    when coalesce(btrim(x.kind), '') = '' then 'a job needs a kind'
                    when coalesce(btrim(x.key), '') = '' then 'a job needs a key'
                    when not p_scheduled and starts_with(x.key, 'schedule:') then 'reserved: keys of schedules begin with schedule:'
                    when x.executor is null or not (x.executor = any ('{DOT, Agent, Hermes, Codex, PG_worker, external_worker, future_Kestra_adapter}'))
                        then 'not a kind of executor: ' || coalesce(left(x.executor, 40), 'null')
                    when not (x.executor = any (p_grants)) then 'not granted: jobs for ' || x.executor
                    when x.max_attempts not between 1 and 1000 then 'max_attempts must be 1 to 1000'
                    when x.deadline_at <= x.run_at then 'the deadline lies before the start'
                    when v_screen or pg_column_size(x.payload) >= 10000
                        then 'payload: ' || gov_handoff.gov_payload_violation(x.payload) end as why
          from rows from (jsonb_to_recordset(p_jobs) as (kind text, key text, executor text, domain text, payload_ref text, payload jsonb,
                   priority smallint, run_at timestamptz, deadline_at timestamptz, max_attempts int, actor text,
                   correlation_id text, depends_on jsonb)) with ordinality
               as x (kind, key, executor, domain, payload_ref, payload, priority, run_at, deadline_at, max_attempts, actor,
                     correlation_id, depends_on, n)
    ), made as (
        insert into public.job_queue (id, job_kind, event_domain, status, executor, priority, payload_ref, safe_payload,
            idempotency_key, run_id, scheduled_at, deadline_at, next_run_at, attempts, max_attempts, actor_ref, created_at, updated_at)
        select i.id, i.kind, i.domain, 'queued', i.executor, i.priority, i.payload_ref, i.payload, i.key,
               case when i.correlation_id ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' then i.correlation_id::uuid
                    else md5(i.correlation_id)::uuid end,
               coalesce(i.run_at, v_now), i.deadline_at, case when i.run_at > v_now then i.run_at end, 0, i.max_attempts, i.actor,
               v_now, v_now
          from item i where i.why is null order by i.n
        on conflict (idempotency_key) do nothing
        returning id, job_kind, event_domain, executor, priority, next_run_at, deadline_at, actor_ref
    ), noted as (
        insert into public.job_step (path, actor_ref, at, job_ids)
        select '{NULL,queued}', m.actor_ref, v_now, array_agg(m.id) from made m group by m.actor_ref
    ), blocked as (
        select i.id from item i where i.waits
    ), ready as (
        insert into public.job_ready (lane_id, job_id, ready_at)
        select l.lane_id, m.id, v_now
          from made m
          join public.job_lane l on l.job_kind = m.job_kind and l.executor = m.executor and l.priority = m.priority
                                and l.event_domain is not distinct from m.event_domain
         where m.next_run_at is null and m.id not in (select b.id from blocked b)
        returning job_id
    ), later as (
        insert into public.job_deferred (due, job_id)
        select m.next_run_at, m.id from made m where m.next_run_at is not null and m.id not in (select b.id from blocked b)
        returning job_id
    ), deadlines as (
        insert into public.job_deadline (deadline_at, job_id)
        select m.deadline_at, m.id from made m where m.deadline_at is not null
    )
    select array_agg(i.id order by i.n), array_agg(i.key order by i.n), array_agg(i.why order by i.n),
           (select array_agg(m.id) from made m), count(*) filter (where i.waits),
           (select array_agg(p.job_id) from (select r.job_id from ready r union all select l.job_id from later l) p)
      into v_ids, v_keys, v_reasons, v_new, v_waits, v_placed
      from item i;
    if v_waits > 0 then
        perform gov_handoff.gov_job_depend(p_jobs, v_ids, v_new);
    end if;
    -- The first jobs of a kind, whose lane is not there yet, and jobs that waited for what has succeeded already.
    if coalesce(cardinality(v_placed), 0) < coalesce(cardinality(v_new), 0) then
        perform gov_handoff.gov_job_free(array(
            select u.id from (select n.id from unnest(v_new) as n (id) except select p.id from unnest(v_placed) as p (id)) u
             where not exists (select from public.job_dependency d where d.job_id = u.id)));
    end if;
    if v_placed <> '{}' then
        perform gov_handoff.gov_job_notify();
    end if;
    for v_bad in select distinct w.why from unnest(v_reasons) as w (why) where w.why like 'payload: %' loop
        v_kind := case when v_bad like '%vector' or v_bad like '%embedding' then 'queue.nvsz_violation' else 'queue.payload_violation' end;
        perform gov_handoff.gov_emit_finding(v_kind, v_kind || ':job:' || session_user, 'high',
            jsonb_build_object('producer', session_user, 'found', v_bad));
    end loop;
    if cardinality(v_new) = cardinality(v_ids)
       and not (exists (select from public.job_archive)
                and exists (select from public.job_archive a where a.idempotency_key = any (v_keys))) then
        return query select u.id, 'done', null::text from unnest(v_ids) as u (id);
        return;
    end if;
    -- A key that an archived job has is taken, also where the archive took the job out of job_queue a moment ago.
    delete from public.job_queue q using public.job_archive a where q.id = any (v_new) and a.idempotency_key = q.idempotency_key;
    return query
        select coalesce(q.id, a.job_id), case when w.why is not null then 'refused' else 'done' end,
               coalesce(w.why, case when q.id is distinct from w.id then 'known' end)
          from (select i.n, i.id, k.key, y.why
                  from unnest(v_ids) with ordinality as i (id, n)
                  join unnest(v_keys) with ordinality as k (key, n) using (n)
                  join unnest(v_reasons) with ordinality as y (why, n) using (n)) w
          left join public.job_queue q on q.idempotency_key = w.key and w.why is null
          left join public.job_archive a on a.idempotency_key = w.key and w.why is null and q.id is null
         order by w.n;
end
$$;

-- Writes what the new jobs of a batch wait for. A name is an id, or a key of this batch or of an earlier job. A job that has
-- succeeded already is not waited for.
create function gov_handoff.gov_job_depend(p_jobs jsonb, p_ids uuid[], p_new uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_of uuid[];
    v_on uuid[];
    v_unknown text;
begin
    select array_agg(f.id), array_agg(f.on_id), min(f.name) filter (where f.on_id is null) into v_of, v_on, v_unknown
      from (select i.id, d.name, coalesce(
                       (select q.id from public.job_queue q where q.idempotency_key = d.name),
                       case when d.name ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$'
                            then coalesce((select q.id from public.job_queue q where q.id = d.name::uuid),
                                          (select a.job_id from public.job_archive a where a.job_id = d.name::uuid)) end,
                       (select a.job_id from public.job_archive a where a.idempotency_key = d.name)) as on_id
              from jsonb_array_elements(p_jobs) with ordinality as j (job, n)
              join unnest(p_ids) with ordinality as i (id, n) using (n),
                   jsonb_array_elements_text(j.job -> 'depends_on') as d (name)
             where jsonb_typeof(j.job -> 'depends_on') = 'array' and i.id = any (p_new)) f;
    if v_unknown is not null then
        raise exception 'a job depends on a job that does not exist: %', left(v_unknown, 200) using errcode = 'GH003';
    end if;
    -- Those jobs are not locked: a producer's transaction may stay open, and whoever runs one of them would wait for it. A job
    -- that succeeds before this commit may not see these rows. Then the tick finds them (gov_job_settle).
    insert into public.job_dependency (job_id, depends_on)
    select distinct d.of_id, d.on_id
      from unnest(v_of, v_on) as d (of_id, on_id)
     where not gov_handoff.gov_job_succeeded(d.on_id);
    perform gov_handoff.gov_job_acyclic(v_of, v_on);
end
$$;

-- Whether a job has succeeded. The log is asked only about jobs that were cleaned since.
create function gov_handoff.gov_job_succeeded(p_id uuid)
returns boolean language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_status text := coalesce((select q.status from public.job_queue q where q.id = p_id), 'cleaned');
begin
    return v_status = 'succeeded' or v_status = 'cleaned' and exists (
        select from public.job_step s where s.job_ids @> array[p_id] and 'succeeded' = any (s.path[2:]));
end
$$;

-- Refuses edges that form a cycle: none of its jobs could ever run. Only new jobs get edges, and an older job cannot wait for a
-- new one, so a cycle lies within one batch. Jobs that wait for nothing more are taken away until none is left, or a cycle is.
create function gov_handoff.gov_job_acyclic(p_of uuid[], p_on uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_before int;
    v_key text;
begin
    loop
        v_before := cardinality(p_of);
        select array_agg(e.of_id), array_agg(e.on_id) into p_of, p_on
          from unnest(p_of, p_on) as e (of_id, on_id)
         where e.on_id in (select o.of_id from unnest(p_of) as o (of_id));
        if p_of is null then
            return;
        elsif cardinality(p_of) = v_before then
            select min(q.idempotency_key) into v_key from public.job_queue q where q.id = any (p_of);
            raise exception 'jobs wait for each other in a cycle: % is part of it, or waits for it', left(v_key, 200)
                using errcode = 'GH003';
        end if;
    end loop;
end
$$;

-- Enqueues the jobs of a graph in one commit: all of them, or none. An item is one of fn_job_enqueue_many; depends_on names what
-- it waits for, by key. Where one item is refused, every item is; a cycle or an unknown dependency is an error. This is all that
-- MOT does in the queue: it is a producer, and no executor.
create function public.fn_mot_graph_emit(p_graph jsonb)
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
    v_reasons text[];
    v_refused bool;
begin
    begin
        select array_agg(e.job_id order by e.n), array_agg(e.reason order by e.n), coalesce(bool_or(e.outcome = 'refused'), false)
          into v_ids, v_reasons, v_refused
          from gov_handoff.gov_job_enqueue(p_graph, gov_handoff.gov_job_grants(), false) with ordinality as e (job_id, outcome, reason, n);
        if v_refused then
            -- Takes back what the other items left.
            raise exception 'refused' using errcode = 'GH003', detail = 'gov_mot_graph';
        end if;
    exception when sqlstate 'GH003' then
        if not coalesce(v_refused, false) then
            raise;
        end if;
    end;
    return query
        select case when not v_refused then u.id end, case when v_refused then 'refused' else 'done' end,
               case when v_refused and (u.why is null or u.why = 'known') then 'another job of the graph was refused' else u.why end
          from unnest(v_ids, v_reasons) as u (id, why);
end
$$;

-- Enqueues one job. The same key again returns the same id and changes nothing. Null: the payload was refused, which is a finding.
create function public.fn_job_enqueue(p_kind text, p_key text, p_executor text, p_domain text default null, p_payload_ref text default null,
    p_payload jsonb default '{}', p_priority int default 0, p_run_at timestamptz default null, p_deadline_at timestamptz default null,
    p_max_attempts int default null, p_actor text default null, p_correlation_id text default null)
returns uuid language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_answer record;
begin
    select m.job_id, m.outcome, m.reason into v_answer
      from public.fn_job_enqueue_many(jsonb_build_array(jsonb_build_object('kind', p_kind, 'key', p_key, 'executor', p_executor,
          'domain', p_domain, 'payload_ref', p_payload_ref, 'payload', p_payload, 'priority', p_priority, 'run_at', p_run_at,
          'deadline_at', p_deadline_at, 'max_attempts', p_max_attempts, 'actor', p_actor, 'correlation_id', p_correlation_id))) m;
    if v_answer.outcome = 'refused' and v_answer.reason like 'payload: %' then
        raise warning 'the job was refused (%): a payload carries references, not contents', v_answer.reason;
    elsif v_answer.outcome = 'refused' then
        raise exception 'the job was refused: %', v_answer.reason
            using errcode = case when v_answer.reason like 'not granted%' then '42501' else 'GH003' end;
    end if;
    return v_answer.job_id;
end
$$;

-- Executors --------------------------------------------------------------------------------------------------------

-- Registers an executor, or changes its kind or role. It is enabled, and may claim after its first heartbeat. p_role: the
-- role that may act for it; without one, the role of its first heartbeat is bound.
create function public.fn_executor_register(p_executor_id text, p_executor_kind text, p_actor text, p_role name default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_role is not null and not exists (select from pg_roles where rolname = p_role) then
        raise exception 'there is no role %', p_role using errcode = 'GH003';
    end if;
    insert into public.job_executor as e (executor_id, executor_kind, role_name, registered_by)
    values (p_executor_id, p_executor_kind, p_role, coalesce(nullif(btrim(p_actor), ''), session_user::text))
    on conflict (executor_id) do update
        set executor_kind = excluded.executor_kind, role_name = coalesce(excluded.role_name, e.role_name), enabled = true,
            registered_by = excluded.registered_by, registered_at = clock_timestamp();
    -- A kind that changes leaves no subscription or heartbeat of the other kind behind.
    update public.job_subscription set executor_kind = p_executor_kind
     where executor_id = p_executor_id and executor_kind <> p_executor_kind;
    update public.queue_heartbeat set executor_kind = p_executor_kind
     where executor_name = p_executor_id and executor_kind <> p_executor_kind;
end
$$;

-- Disables an executor: it claims nothing more. What it runs it may still finish.
create function public.fn_executor_disable(p_executor_id text, p_actor text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.job_executor set enabled = false, registered_by = coalesce(nullif(btrim(p_actor), ''), session_user::text)
     where executor_id = p_executor_id and enabled;
    return found;
end
$$;

-- Subscribes an executor to jobs. Null for kind or domain: all. The most specific subscription that fits a job decides about it.
create function public.fn_job_subscribe(p_executor_id text, p_job_kind text default null, p_domain text default null, p_priority_floor int default 0,
    p_max_parallel int default 1, p_enabled boolean default true, p_actor text default null)
returns uuid language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_kind text;
    v_id uuid;
begin
    -- Claims lock this row as well: a limit does not change in the middle of one.
    select e.executor_kind into v_kind from public.job_executor e where e.executor_id = p_executor_id for update;
    if not found then
        raise exception 'executor % is not registered', p_executor_id using errcode = 'GH003',
            hint = 'register it first: fn_executor_register';
    end if;
    insert into public.job_subscription (executor_id, executor_kind, job_kind, event_domain, priority_floor, max_parallel, enabled,
        registered_by)
    values (p_executor_id, v_kind, p_job_kind, p_domain, p_priority_floor, p_max_parallel, p_enabled,
            coalesce(nullif(btrim(p_actor), ''), session_user::text))
    on conflict (executor_id, job_kind, event_domain) do update
        set priority_floor = excluded.priority_floor, max_parallel = excluded.max_parallel, enabled = excluded.enabled,
            executor_kind = excluded.executor_kind, registered_by = excluded.registered_by, registered_at = now()
    returning subscription_id into v_id;
    return v_id;
end
$$;

-- Lets a role enqueue jobs for a kind of executor, or takes that back.
create function public.fn_job_producer_grant(p_role name, p_executor_kind text, p_granted boolean, p_actor text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not p_granted then
        delete from public.job_producer where role_name = p_role and executor_kind = p_executor_kind;
        return found;
    end if;
    if not exists (select from pg_roles where rolname = p_role) then
        raise exception 'there is no role %', p_role using errcode = 'GH003';
    end if;
    insert into public.job_producer (role_name, executor_kind, granted_by)
    values (p_role, p_executor_kind, coalesce(nullif(btrim(p_actor), ''), session_user::text))
    on conflict do nothing;
    return found;
end
$$;

-- Fails unless the session may act for these executors.
create function gov_handoff.gov_executor_own(p_executors text[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_foreign text;
begin
    select e.executor_id into v_foreign
      from public.job_executor e
     where e.executor_id = any (p_executors)
       and not coalesce(pg_has_role(session_user, to_regrole(quote_ident(e.role_name)), 'member'), false);
    if found then
        raise exception 'role % may not act for executor %', session_user, v_foreign using errcode = '42501',
            hint = 'an operator binds an executor to a role with fn_executor_register(…, p_role)';
    end if;
end
$$;

-- An executor says that it lives. The first time binds an executor without a role to the role of this session.
create function public.fn_executor_heartbeat(p_executor_id text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_kind text;
begin
    update public.job_executor set role_name = session_user where executor_id = p_executor_id and role_name is null;
    perform gov_handoff.gov_executor_own(array[p_executor_id]);
    select executor_kind into v_kind from public.job_executor where executor_id = p_executor_id;
    if not found then
        raise exception 'executor % is not registered', p_executor_id using errcode = 'GH003',
            hint = 'an operator registers it: fn_executor_register';
    end if;
    -- Twice a second is often enough. More would leave dead rows behind each other.
    insert into public.queue_heartbeat as h (executor_name, executor_kind, last_tick_at, ticks_total, metadata)
    values (p_executor_id, v_kind, clock_timestamp(), 1, '{"jobs": true}')
    on conflict (executor_name) do update
        set last_tick_at = clock_timestamp(), ticks_total = h.ticks_total + 1, last_tick_status = 'ok', updated_at = clock_timestamp()
        where h.last_tick_at < clock_timestamp() - interval '500 milliseconds' or h.last_tick_at > clock_timestamp();
end
$$;

-- Jobs that left their claims, p_numbers[i] of the claim p_tokens[i]: the executors are locked, then their subscriptions are counted
-- down. The lock and the look are two statements, so that the look sees what the holder before wrote.
create function gov_handoff.gov_job_uncount(p_tokens bigint[], p_numbers int[], p_rescued boolean default false)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    perform from public.job_executor e
      where e.executor_id in (select c.executor_id from public.job_claim c where c.token = any (p_tokens))
      order by e.executor_id for update;
    insert into public.job_running (subscription_id, seq, running, claimed, finished, rescued)
    select g.subscription_id, coalesce(r.seq, 0) + 1, greatest(coalesce(r.running, 0) - g.n, 0), coalesce(r.claimed, 0),
           coalesce(r.finished, 0) + case when p_rescued then 0 else g.n end,
           coalesce(r.rescued, 0) + case when p_rescued then g.n else 0 end
      from (select c.subscription_id, sum(t.n) as n
              from unnest(p_tokens, p_numbers) as t (token, n) join public.job_claim c on c.token = t.token
             group by c.subscription_id) g
      left join lateral (select c.seq, c.running, c.claimed, c.finished, c.rescued from public.job_running c
                          where c.subscription_id = g.subscription_id order by c.seq desc limit 1) r on true
     where g.n > 0;
end
$$;

-- Claim ------------------------------------------------------------------------------------------------------------

-- Claims up to p_limit jobs for an executor: what its subscriptions allow, highest priority first, oldest first within a
-- lane. Each claim has a new token, which start, heartbeat, complete, fail and release have to give. p_start: the jobs are started
-- in the same commit, which saves the executor a call; they pass through `leased` all the same.
create function public.fn_job_claim(p_executor_id text, p_limit int default 1, p_lease interval default '30 seconds', p_start boolean default false)
returns table (job_id uuid, token bigint, job_kind text, event_domain text, payload_ref text, safe_payload jsonb, attempt int,
               lease_until timestamptz, deadline_at timestamptz) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_until timestamptz := v_now + p_lease;
    v_status text := case when p_start then 'in_progress' else 'leased' end;
    v_path text[] := case when p_start then '{queued, leased, in_progress}' else '{queued, leased}' end;
    v_executor record;
    v_lane record;
    v_sub uuid;
    v_left int := p_limit;
    v_room bigint;
    v_want int;
    v_token bigint;
    v_seq bigint;
    v_running bigint;
    v_claimed bigint;
    v_picked uuid[];
    v_first bigint;
    v_got int;
begin
    if p_limit is null or p_limit not between 1 and 10000 then
        raise exception 'a claim is for 1 to 10000 jobs, not %', p_limit using errcode = 'GH003';
    end if;
    if p_lease is null or p_lease < interval '100 milliseconds' or p_lease > interval '1 day' then
        raise exception 'a lease lasts 100 ms to 1 day, not %', p_lease using errcode = 'GH003';
    end if;
    -- The patience is that of gov_executor_patience, read here because a call of it costs more than the rest of this statement.
    select e.executor_kind, e.enabled, h.last_tick_at,
           coalesce((select case when c.value ~ '^[0-9]{1,8}$' then c.value::int end from public.dot_config c
                      where c.key = 'job.executor.silent_ms'), 60000) * interval '1 millisecond' as patience,
           coalesce(pg_has_role(session_user, to_regrole(quote_ident(e.role_name)), 'member'), false) as allowed
      into v_executor
      from public.job_executor e
      left join public.queue_heartbeat h on h.executor_name = e.executor_id and h.executor_kind = e.executor_kind
     where e.executor_id = p_executor_id for update of e;
    if not found then
        raise exception 'executor % is not registered', p_executor_id using errcode = 'GH003',
            hint = 'an operator registers it: fn_executor_register';
    elsif not v_executor.allowed then
        raise exception 'role % may not act for executor %', session_user, p_executor_id using errcode = '42501',
            hint = 'an operator binds an executor to a role with fn_executor_register(…, p_role)';
    elsif not v_executor.enabled then
        raise exception 'executor % is disabled', p_executor_id using errcode = 'GH003';
    elsif v_executor.last_tick_at is null or v_executor.last_tick_at < v_now - v_executor.patience then
        raise exception 'executor % has no heartbeat', p_executor_id using errcode = 'GH003',
            hint = 'call fn_executor_heartbeat before the first claim, and then every few seconds';
    end if;
    if p_start then
        -- Lets the trigger take two transitions for one. It tells nobody but the gates' owner.
        perform set_config('gov_handoff.claim_starts', 'on', true);
    end if;
    -- The lanes of each subscription, twice: first from their heads on; then what a transaction committed late and lies before
    -- them, which is looked at where the claim would go short otherwise.
    for v_lane in
        select s.subscription_id, s.max_parallel, r.seq, r.running, r.claimed, r.finished, r.rescued, l.lane_id, p.pass, l.head, l.floor
          from public.job_subscription s
          left join lateral (select c.seq, c.running, c.claimed, c.finished, c.rescued from public.job_running c
                              where c.subscription_id = s.subscription_id order by c.seq desc limit 1) r on true
          cross join lateral (
               select l.lane_id, l.priority,
                      coalesce((select f.floor from public.job_lane_floor f where f.lane_id = l.lane_id), 0) as floor,
                      coalesce((select h.head from public.job_lane_head h where h.lane_id = l.lane_id order by h.head desc limit 1), 0) as head
                 from public.job_lane l
                where (s.job_kind is null or l.job_kind = s.job_kind)
                  and (s.event_domain is null or l.event_domain = s.event_domain)
                  and (l.executor is null or l.executor = v_executor.executor_kind)
                  and l.priority >= s.priority_floor
                  -- A more specific subscription decides about its own jobs.
                  and not exists (
                      select from public.job_subscription o
                       where o.executor_id = p_executor_id and o.enabled and o.subscription_id <> s.subscription_id
                         and (o.job_kind is null or o.job_kind = l.job_kind)
                         and (o.event_domain is null or o.event_domain = l.event_domain)
                         and (o.job_kind is not null)::int * 2 + (o.event_domain is not null)::int
                             > (s.job_kind is not null)::int * 2 + (s.event_domain is not null)::int)) l
          cross join (values (1), (2)) as p (pass)
         where s.executor_id = p_executor_id and s.enabled and s.executor_kind = v_executor.executor_kind
           and (p.pass = 1 or l.head > l.floor) and coalesce(r.running, 0) < s.max_parallel
         order by (s.job_kind is not null)::int * 2 + (s.event_domain is not null)::int desc, s.subscription_id, p.pass,
                  l.priority desc, l.head
    loop
        if v_sub is distinct from v_lane.subscription_id then
            v_sub := v_lane.subscription_id;
            v_seq := coalesce(v_lane.seq, 0);
            v_running := coalesce(v_lane.running, 0);
            v_claimed := coalesce(v_lane.claimed, 0);
        end if;
        loop
            v_want := least(v_left, v_lane.max_parallel - v_running);
            exit when v_want <= 0;
            with picked as (
                -- An array, so that the limit is evaluated once.
                delete from public.job_ready r
                 where r.ctid = any (array(select e.ctid from public.job_ready e
                                            where e.lane_id = v_lane.lane_id
                                              and e.pos >= case v_lane.pass when 1 then v_lane.head else v_lane.floor end
                                              and e.pos < case v_lane.pass when 1 then 9223372036854775807 else v_lane.head end
                                            order by e.pos limit v_want for update skip locked))
                returning r.job_id, r.pos
            )
            select array_agg(p.job_id), min(p.pos) into v_picked, v_first from picked p;
            exit when v_picked is null;
            if v_lane.pass = 1 and v_first > v_lane.head + 64 then
                insert into public.job_lane_head (lane_id, head) values (v_lane.lane_id, v_first) on conflict do nothing;
            end if;
            v_token := nextval('public.job_token_seq');
            v_seq := v_seq + 1;
            return query
            with leased as (
                update public.job_queue q
                   set status = v_status, lease_owner = p_executor_id || '#' || v_token, lease_until = v_until,
                       attempts = q.attempts + 1, next_run_at = null, updated_at = v_now
                 where q.id = any (v_picked) and q.status = 'queued'
                returning q.id, q.job_kind, q.event_domain, q.payload_ref, q.safe_payload, q.attempts, q.deadline_at
            ), taken as materialized (
                select array_agg(l.id) as ids from leased l having count(*) > 0
            ), noted as (
                insert into public.job_step (path, token, executor_id, actor_ref, job_ids)
                select v_path, v_token, p_executor_id, session_user, t.ids from taken t
            ), claim as (
                insert into public.job_claim (token, executor_id, subscription_id, job_ids, claimed_at, look_at)
                select v_token, p_executor_id, v_sub, t.ids, v_now, v_until from taken t
            ), counted as (
                insert into public.job_running (subscription_id, seq, running, claimed, finished, rescued)
                select v_sub, v_seq, v_running + cardinality(t.ids), v_claimed + cardinality(t.ids), coalesce(v_lane.finished, 0),
                       coalesce(v_lane.rescued, 0)
                  from taken t
            )
            select l.id, v_token, l.job_kind, l.event_domain, l.payload_ref, l.safe_payload, l.attempts, v_until, l.deadline_at
              from leased l;
            get diagnostics v_got = row_count;
            v_left := v_left - v_got;
            v_running := v_running + v_got;
            v_claimed := v_claimed + v_got;
            -- An entry that was out of date leaves room for another one.
            exit when cardinality(v_picked) < v_want or v_got = v_want;
        end loop;
        exit when v_left <= 0;
    end loop;
end
$$;

-- How long an executor may be silent before its jobs are given to others.
create function gov_handoff.gov_executor_patience()
returns interval language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select coalesce((select case when c.value ~ '^[0-9]{1,8}$' then c.value::int end from public.dot_config c
                      where c.key = 'job.executor.silent_ms'), 60000) * interval '1 millisecond');
end
$$;

-- What an executor does with its jobs ------------------------------------------------------------------------------

-- The claims of some tokens: how their leases are named, and whether the session may act for their executors.
create function gov_handoff.gov_job_mine(p_tokens bigint[])
returns table (token bigint, owner text, allowed boolean) language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select c.token, c.executor_id || '#' || c.token,
           coalesce(pg_has_role(session_user, to_regrole(quote_ident(e.role_name)), 'member'), false)
      from public.job_claim c join public.job_executor e on e.executor_id = c.executor_id
     where c.token = any (p_tokens);
end
$$;

-- The jobs of each token, for claims whose executors the session may act for.
create function gov_handoff.gov_job_groups(p_ids uuid[], p_tokens bigint[])
returns table (token bigint, executor_id text, ids uuid[]) language plpgsql stable rows 1
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select c.token, c.executor_id, g.ids
      from (select i.token, array_agg(i.id) as ids from unnest(p_ids, p_tokens) as i (id, token) group by i.token) g
      join public.job_claim c on c.token = g.token
      join public.job_executor e on e.executor_id = c.executor_id
     where coalesce(pg_has_role(session_user, to_regrole(quote_ident(e.role_name)), 'member'), false)
     order by c.token;
end
$$;

-- One answer for each item: done where the job is in p_done, else why not. Reads after the update, so it sees what stood in
-- the way.
create function gov_handoff.gov_job_answers(p_ids uuid[], p_tokens bigint[], p_done uuid[], p_wants text)
returns table (job_id uuid, outcome text, reason text) language plpgsql
set search_path = pg_catalog, pg_temp
set enable_hashjoin = on
as $$
#variable_conflict use_column
begin
    if cardinality(p_done) = cardinality(p_ids) then
        return query select i.id, 'done', null::text from unnest(p_ids) as i (id);
        return;
    end if;
    return query
        select i.id,
               case when d.id is not null then 'done'
                    when m.allowed is false then 'refused'
                    when q.status is not null and q.lease_owner = m.owner then 'refused'
                    else 'stale' end,
               case when d.id is not null then null
                    when q.status is null then 'no such job'
                    when m.allowed is false then 'the executor of this claim is bound to another role'
                    when q.lease_owner = m.owner then 'the job is ' || q.status || ', not ' || p_wants
                    when q.status in ('leased', 'in_progress') then 'the job was claimed again, under another token'
                    else 'the claim is over: the job is ' || q.status end
          from rows from (unnest(p_ids), unnest(p_tokens)) with ordinality as i (id, token, n)
          left join unnest(p_done) as d (id) on d.id = i.id
          left join public.job_queue q on q.id = i.id
          left join gov_handoff.gov_job_mine(p_tokens) m on m.token = i.token
         order by i.n;
end
$$;

create function gov_handoff.gov_job_pairs(p_ids uuid[], p_tokens bigint[])
returns void language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if cardinality(p_ids) is distinct from cardinality(p_tokens) then
        raise exception 'expected a token for each job, found % jobs and % tokens', coalesce(cardinality(p_ids), 0),
            coalesce(cardinality(p_tokens), 0) using errcode = 'GH003';
    end if;
end
$$;

-- leased -> in_progress.
create function public.fn_job_start(p_ids uuid[], p_tokens bigint[])
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_done uuid[] := '{}';
    v_some uuid[];
    v_claim record;
begin
    if cardinality(p_ids) is distinct from cardinality(p_tokens) then
        perform gov_handoff.gov_job_pairs(p_ids, p_tokens);
    end if;
    for v_claim in select m.token, m.executor_id, m.ids from gov_handoff.gov_job_groups(p_ids, p_tokens) m loop
        with done as (
            update public.job_queue q
               set status = 'in_progress', updated_at = v_now
             where q.id = any (v_claim.ids) and q.status = 'leased' and q.lease_owner = v_claim.executor_id || '#' || v_claim.token
            returning q.id
        ), noted as (
            insert into public.job_step (path, token, executor_id, actor_ref, job_ids)
            select '{leased, in_progress}', v_claim.token, v_claim.executor_id, session_user, array_agg(d.id) from done d having count(*) > 0
        )
        select array_agg(d.id) into v_some from done d;
        v_done := v_done || v_some;
    end loop;
    if cardinality(v_done) = cardinality(p_ids) then
        return query select i.id, 'done', null::text from unnest(p_ids) as i (id);
    else
        return query select * from gov_handoff.gov_job_answers(p_ids, p_tokens, v_done, 'leased');
    end if;
end
$$;

-- Extends the leases of jobs that still run, and is a heartbeat of the executor.
create function public.fn_job_heartbeat(p_executor_id text, p_ids uuid[], p_tokens bigint[], p_extend interval default '30 seconds')
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_done uuid[] := '{}';
    v_claim record;
begin
    perform gov_handoff.gov_job_pairs(p_ids, p_tokens);
    if p_extend is null or p_extend < interval '100 milliseconds' or p_extend > interval '1 day' then
        raise exception 'a lease is extended by 100 ms to 1 day, not %', p_extend using errcode = 'GH003';
    end if;
    perform public.fn_executor_heartbeat(p_executor_id);
    for v_claim in
        select m.token, m.owner, array_agg(i.id) as ids
          from unnest(p_ids, p_tokens) as i (id, token) join gov_handoff.gov_job_mine(p_tokens) m on m.token = i.token
         where m.allowed and m.owner = p_executor_id || '#' || m.token
         group by m.token, m.owner order by m.token
    loop
        with done as (
            update public.job_queue q
               set lease_until = greatest(q.lease_until, v_now + p_extend), updated_at = v_now
             where q.id = any (v_claim.ids) and q.status in ('leased', 'in_progress') and q.lease_owner = v_claim.owner
            returning q.id
        )
        select v_done || coalesce(array_agg(d.id), '{}') into v_done from done d;
    end loop;
    return query select * from gov_handoff.gov_job_answers(p_ids, p_tokens, v_done, 'a job of this executor');
end
$$;

-- in_progress -> succeeded. The evidence is kept for each job; it carries references, not contents.
create function public.fn_job_complete(p_ids uuid[], p_tokens bigint[], p_evidence jsonb default '{}')
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_done uuid[] := '{}';
    v_some uuid[];
    v_claim record;
    v_tokens bigint[] := '{}';
    v_numbers int[] := '{}';
begin
    if cardinality(p_ids) is distinct from cardinality(p_tokens) then
        perform gov_handoff.gov_job_pairs(p_ids, p_tokens);
    end if;
    if p_evidence <> '{}' and gov_handoff.gov_payload_violation(p_evidence) is not null then
        raise exception 'the evidence was refused (%): evidence carries references, not contents',
            gov_handoff.gov_payload_violation(p_evidence) using errcode = 'GH003';
    elsif p_ids = '{}' then
        return;
    end if;
    -- What gov_job_groups reads. It stands here because a call of it costs as much as the update of a job.
    for v_claim in
        select c.token, c.executor_id, g.ids
          from (select i.token, array_agg(i.id) as ids from unnest(p_ids, p_tokens) as i (id, token) group by i.token) g
          join public.job_claim c on c.token = g.token
          join public.job_executor e on e.executor_id = c.executor_id
         where coalesce(pg_has_role(session_user, to_regrole(quote_ident(e.role_name)), 'member'), false)
         order by c.token
    loop
        with done as (
            update public.job_queue q
               set status = 'succeeded', lease_owner = null, lease_until = null, last_error = null, updated_at = v_now
             where q.id = any (v_claim.ids) and q.status = 'in_progress' and q.lease_owner = v_claim.executor_id || '#' || v_claim.token
            returning q.id
        ), noted as (
            insert into public.job_step (path, token, executor_id, actor_ref, job_ids)
            select '{in_progress, succeeded}', v_claim.token, v_claim.executor_id, session_user, array_agg(d.id) from done d having count(*) > 0
        )
        select array_agg(d.id) into v_some from done d;
        if p_evidence <> '{}' then
            insert into public.job_evidence (job_id, token, evidence, at)
            select u.id, v_claim.token, p_evidence, v_now from unnest(v_some) as u (id);
        end if;
        v_done := v_done || v_some;
        v_tokens := v_tokens || v_claim.token;
        v_numbers := v_numbers || coalesce(cardinality(v_some), 0);
    end loop;
    if v_done <> '{}' then
        if exists (select from public.job_dependency d where d.depends_on = any (v_done)) then
            perform gov_handoff.gov_job_unblock(v_done);
        end if;
        perform gov_handoff.gov_job_uncount(v_tokens, v_numbers);
    end if;
    if cardinality(v_done) = cardinality(p_ids) then
        return query select i.id, 'done', null::text from unnest(p_ids) as i (id);
    else
        return query select * from gov_handoff.gov_job_answers(p_ids, p_tokens, v_done, 'in_progress');
    end if;
end
$$;

-- Jobs that waited for these, and for nothing else, become ready. The waiting jobs are locked first: of two jobs that succeed
-- at once, the later one sees what the other did. A job that another session holds is left to the tick (gov_job_settle):
-- that session may stay idle.
create function gov_handoff.gov_job_unblock(p_done uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_waiting uuid[];
begin
    select array_agg(w.id) into v_waiting
      from (select q.id from public.job_queue q
             where q.id in (select d.job_id from public.job_dependency d where d.depends_on = any (p_done))
             order by q.id for update skip locked) w;
    if v_waiting is null then
        return;
    end if;
    delete from public.job_dependency d where d.depends_on = any (p_done) and d.job_id = any (v_waiting);
    perform gov_handoff.gov_job_free(array(
        select w.id from unnest(v_waiting) as w (id)
         where not exists (select from public.job_dependency d where d.job_id = w.id)));
end
$$;

-- Queued jobs that nothing blocks: into their lanes, or among the deferred where their time has not come.
create function gov_handoff.gov_job_free(p_ids uuid[])
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into public.job_deferred (due, job_id)
    select q.next_run_at, q.id from public.job_queue q
     where q.id = any (p_ids) and q.status = 'queued' and q.next_run_at > clock_timestamp()
    on conflict do nothing;
    perform gov_handoff.gov_job_make_ready(array(
        select q.id from public.job_queue q
         where q.id = any (p_ids) and q.status = 'queued' and (q.next_run_at is null or q.next_run_at <= clock_timestamp())));
end
$$;

-- leased, in_progress -> queued. A release costs no attempt.
create function public.fn_job_release(p_ids uuid[], p_tokens bigint[])
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_done uuid[] := '{}';
    v_claim record;
    v_was record;
    v_tokens bigint[] := '{}';
    v_numbers int[] := '{}';
begin
    if cardinality(p_ids) is distinct from cardinality(p_tokens) then
        perform gov_handoff.gov_job_pairs(p_ids, p_tokens);
    end if;
    for v_claim in select m.token, m.executor_id, m.ids from gov_handoff.gov_job_groups(p_ids, p_tokens) m loop
        for v_was in
            with held as materialized (
                select q.id, q.status from public.job_queue q
                 where q.id = any (v_claim.ids) and q.status in ('leased', 'in_progress')
                   and q.lease_owner = v_claim.executor_id || '#' || v_claim.token
                 order by q.id for update
            ), done as (
                update public.job_queue q
                   set status = 'queued', lease_owner = null, lease_until = null, attempts = greatest(q.attempts - 1, 0),
                       updated_at = clock_timestamp()
                  from held h where q.id = h.id
                returning q.id, h.status
            )
            select d.status, array_agg(d.id) as ids from done d group by d.status
        loop
            perform gov_handoff.gov_job_log(v_was.ids, array[v_was.status, 'queued'], null, 'released', v_claim.token, v_claim.executor_id);
            v_done := v_done || v_was.ids;
            v_tokens := v_tokens || v_claim.token;
            v_numbers := v_numbers || cardinality(v_was.ids);
        end loop;
    end loop;
    if v_done <> '{}' then
        perform gov_handoff.gov_job_make_ready(v_done);
        perform gov_handoff.gov_job_uncount(v_tokens, v_numbers);
    end if;
    return query select * from gov_handoff.gov_job_answers(p_ids, p_tokens, v_done, 'leased or in_progress');
end
$$;

-- Retry and dead letters -------------------------------------------------------------------------------------------

-- A setting of retries: the kind's own (event.retry.<kind>.<name>), else the common one (event.retry.<name>), else the default.
create function gov_handoff.gov_job_setting(p_kind text, p_name text, p_default bigint)
returns bigint language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select coalesce((select c.value::bigint from public.dot_config c
                      where c.key = 'event.retry.' || p_kind || '.' || p_name and c.value ~ '^[0-9]{1,12}$'),
                    (select c.value::bigint from public.dot_config c
                      where c.key = 'event.retry.' || p_name and c.value ~ '^[0-9]{1,12}$'), p_default));
end
$$;

-- How long a job waits before its next attempt: doubled for each attempt, at most the cap, of which between half and all. The
-- jitter follows from job and attempt, so the same job waits the same time wherever this is computed.
create function gov_handoff.gov_job_delay(p_id uuid, p_kind text, p_attempts int)
returns interval language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select least(gov_handoff.gov_job_setting(p_kind, 'cap_ms', 30000),
                 gov_handoff.gov_job_setting(p_kind, 'base_ms', 200) * power(2, least(greatest(p_attempts, 1), 30) - 1))
           * (0.5 + (hashtextextended(p_id::text, p_attempts) & 1023) / 2046.0) * interval '1 millisecond');
end
$$;

-- Ends an attempt that did not succeed, for jobs in_progress under one claim that this transaction has locked: retry_waiting while
-- attempts are left and p_retry says so, else failed, and from there dead_letter unless the kind wants no dead letters
-- (`event.retry.<kind>.dead_letter = 0`).
create function gov_handoff.gov_job_end_attempt(p_ids uuid[], p_error text, p_retry boolean, p_code text, p_now timestamptz, p_actor text,
                                                p_token bigint, p_executor text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_waiting uuid[];
    v_failed uuid[];
    v_dead uuid[];
begin
    with waiting as (
        update public.job_queue q
           set status = 'retry_waiting', lease_owner = null, lease_until = null, last_error = left(p_error, 2000), updated_at = p_now,
               next_run_at = p_now + gov_handoff.gov_job_delay(q.id, q.job_kind, q.attempts)
         where q.id = any (p_ids) and q.status = 'in_progress' and p_retry and q.attempts < q.max_attempts
        returning q.id, q.next_run_at
    ), deferred as (
        insert into public.job_deferred (due, job_id) select w.next_run_at, w.id from waiting w
    )
    select array_agg(w.id) into v_waiting from waiting w;
    perform gov_handoff.gov_job_log(v_waiting, '{in_progress, retry_waiting}', p_actor, p_error, p_token, p_executor);
    with failed as (
        update public.job_queue q
           set status = 'failed', lease_owner = null, lease_until = null, next_run_at = null, last_error = left(p_error, 2000),
               updated_at = p_now
         where q.id = any (p_ids) and q.status = 'in_progress'
        returning q.id, q.job_kind
    )
    select array_agg(f.id), array_agg(f.id) filter (where gov_handoff.gov_job_setting(f.job_kind, 'dead_letter', 1) <> 0)
      into v_failed, v_dead from failed f;
    perform gov_handoff.gov_job_log(v_failed, '{in_progress, failed}', p_actor, p_error, p_token, p_executor);
    if v_dead is not null then
        perform gov_handoff.gov_job_dead_letter(v_dead, p_error, p_code, p_now, 'failed', p_actor, p_token, p_executor);
    end if;
end
$$;

-- Jobs become dead letters: failed, or leased too often without ever starting. A letter that a redrive closed is opened again:
-- one job has one letter.
create function gov_handoff.gov_job_dead_letter(p_ids uuid[], p_error text, p_code text, p_now timestamptz, p_from text, p_actor text,
                                                p_token bigint, p_executor text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    v_job record;
begin
    if cardinality(p_ids) = 0 then
        return;
    end if;
    perform gov_handoff.gov_job_log(p_ids, array[p_from, 'dead_letter'], p_actor, p_error, p_token, p_executor);
    for v_job in
        update public.job_queue q
           set status = 'dead_letter', lease_owner = null, lease_until = null, next_run_at = null, last_error = left(p_error, 2000),
               updated_at = p_now
         where q.id = any (p_ids) and q.status = p_from
        returning q.id, q.job_kind, q.event_domain, q.executor, q.payload_ref, q.attempts, q.idempotency_key, q.created_at
    loop
        update public.iu_route_dead_letter d
           set resolved_at = null, resolution = null, failure_code = p_code, failure_detail = left(p_error, 2000),
               attempts = d.attempts + v_job.attempts, last_failed_at = p_now
         where d.worker_name = 'job_queue' and d.idempotency_key = v_job.id::text;
        if not found then
            insert into public.iu_route_dead_letter (worker_name, event_ref, event_domain, event_type, route_code, idempotency_key,
                failure_code, failure_detail, attempts, event_snapshot, first_failed_at, last_failed_at)
            values ('job_queue', v_job.id, coalesce(v_job.event_domain, 'system'), v_job.job_kind, 'job_queue', v_job.id::text,
                p_code, left(p_error, 2000), v_job.attempts,
                jsonb_build_object('source_key', v_job.id, 'canonical_address', coalesce(v_job.payload_ref, 'job:' || v_job.id),
                    'kinds', jsonb_build_array(v_job.job_kind), 'job_id', v_job.id, 'job_kind', v_job.job_kind, 'executor', v_job.executor,
                    'payload_ref', v_job.payload_ref, 'key', left(v_job.idempotency_key, 500), 'created_at', v_job.created_at),
                p_now, p_now);
        end if;
    end loop;
    perform gov_handoff.gov_emit_finding('job_dlq', 'job_dlq', 'high', jsonb_build_object('failure_code', p_code));
end
$$;

-- in_progress -> retry_waiting, or failed and dead_letter. p_retry false: the executor refuses the job for good.
create function public.fn_job_fail(p_id uuid, p_token bigint, p_error text, p_retry boolean default true)
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_done uuid[];
    v_executor text;
begin
    select g.executor_id into v_executor
      from gov_handoff.gov_job_groups(array[p_id], array[p_token]) g
      join public.job_queue q on q.id = p_id and q.status = 'in_progress' and q.lease_owner = g.executor_id || '#' || g.token
       for update of q;
    if found then
        perform gov_handoff.gov_job_end_attempt(array[p_id], coalesce(nullif(btrim(p_error), ''), 'failed'), coalesce(p_retry, true),
            case when coalesce(p_retry, true) then 'attempts_exhausted' else 'refused' end, clock_timestamp(), null, p_token, v_executor);
        perform gov_handoff.gov_job_uncount(array[p_token], array[1]);
        v_done := array[p_id];
    end if;
    return query select * from gov_handoff.gov_job_answers(array[p_id], array[p_token], v_done, 'in_progress');
end
$$;

-- Operators --------------------------------------------------------------------------------------------------------

-- Closes the letters of jobs.
create function gov_handoff.gov_job_letter_close(p_ids uuid[], p_resolution text, p_reason text, p_actor text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.iu_route_dead_letter d
       set resolved_at = clock_timestamp(), resolution = p_resolution,
           event_snapshot = coalesce(d.event_snapshot, '{}') || jsonb_build_object('resolution',
               jsonb_build_object('by', p_actor, 'reason', p_reason, 'at', clock_timestamp()))
     where d.worker_name = 'job_queue' and d.idempotency_key = any (p_ids::text[]) and d.resolved_at is null;
    if not exists (select from public.iu_route_dead_letter d where d.worker_name = 'job_queue' and d.resolved_at is null) then
        perform gov_handoff.gov_finding_resolve('job_dlq', 'no open dead letters of jobs');
    end if;
end
$$;

-- Ends a job that is not terminal; what runs is fenced off. A letter of it is closed with p_resolution.
create function gov_handoff.gov_job_end(p_id uuid, p_reason text, p_actor text, p_resolution text)
returns table (job_id uuid, outcome text, reason text) language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_job record;
    v_actor text := coalesce(nullif(btrim(p_actor), ''), session_user::text);
begin
    select q.status, q.lease_owner, q.next_run_at into v_job from public.job_queue q where q.id = p_id for update;
    if not found then
        return query select p_id, 'refused', 'no such job';
        return;
    elsif v_job.status not in ('queued', 'leased', 'in_progress', 'retry_waiting', 'dead_letter') then
        return query select p_id, 'refused', 'the job is ' || v_job.status;
        return;
    end if;
    perform gov_handoff.gov_job_log(array[p_id], array[v_job.status, 'cancelled'], v_actor, p_reason,
        nullif(split_part(v_job.lease_owner, '#', 2), '')::bigint, nullif(split_part(v_job.lease_owner, '#', 1), ''));
    update public.job_queue q
       set status = 'cancelled', lease_owner = null, lease_until = null, next_run_at = null, updated_at = clock_timestamp()
     where q.id = p_id;
    delete from public.job_deferred d where d.job_id = p_id and d.due = v_job.next_run_at;
    delete from public.job_dependency d where d.job_id = p_id;
    if v_job.status = 'dead_letter' then
        perform gov_handoff.gov_job_letter_close(array[p_id], p_resolution, p_reason, v_actor);
    elsif v_job.status in ('leased', 'in_progress') then
        perform gov_handoff.gov_job_uncount(array[split_part(v_job.lease_owner, '#', 2)::bigint], array[1]);
    end if;
    return query select p_id, 'done', null::text;
end
$$;

-- An operator's decision about the letter of a job, through the commands for all dead letters: the job is cancelled.
create function gov_handoff.gov_job_letter_resolve(p_letter uuid, p_resolution text, p_reason text, p_actor text)
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_job uuid;
begin
    select d.event_ref into v_job from public.iu_route_dead_letter d
     where d.id = p_letter and d.worker_name = 'job_queue' and d.resolved_at is null;
    return found and exists (select from gov_handoff.gov_job_end(v_job, p_reason, p_actor, p_resolution) e where e.outcome = 'done');
end
$$;

-- Cancels a job; of a dead letter: discards it.
create function public.fn_job_cancel(p_id uuid, p_reason text, p_actor text)
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if coalesce(btrim(p_reason), '') = '' then
        raise exception 'a job is not cancelled without a reason' using errcode = 'GH003';
    end if;
    return query select * from gov_handoff.gov_job_end(p_id, p_reason, p_actor, 'discarded');
end
$$;

-- Cancels a job because another one takes its place.
create function public.fn_job_supersede(p_id uuid, p_by uuid, p_actor text)
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if p_id = p_by or not exists (select from public.job_queue q where q.id = p_by) then
        return query select p_id, 'refused', 'expected another job that takes its place, found ' || coalesce(p_by::text, 'null');
        return;
    end if;
    return query select * from gov_handoff.gov_job_end(p_id, 'superseded by ' || p_by, p_actor, 'superseded');
end
$$;

-- dead_letter -> queued. The job keeps its id, key and history, and has all its attempts again.
create function public.fn_job_redrive(p_ids uuid[], p_actor text)
returns table (job_id uuid, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_done uuid[];
begin
    with done as (
        update public.job_queue q set status = 'queued', attempts = 0, updated_at = clock_timestamp()
         where q.id in (select i.id from unnest(p_ids) as i (id)) and q.status = 'dead_letter'
        returning q.id
    )
    select array_agg(d.id) into v_done from done d;
    if v_done is not null then
        perform gov_handoff.gov_job_log(v_done, '{dead_letter, queued}', p_actor, 'redriven');
        perform gov_handoff.gov_job_letter_close(v_done, 'replayed', 'redriven', coalesce(nullif(btrim(p_actor), ''), session_user::text));
        perform gov_handoff.gov_job_make_ready(v_done);
    end if;
    return query
        select i.id, case when i.id = any (v_done) then 'done' else 'refused' end,
               case when i.id = any (v_done) then null when q.id is null then 'no such job' else 'the job is ' || q.status end
          from unnest(p_ids) with ordinality as i (id, n) left join public.job_queue q on q.id = i.id order by i.n;
end
$$;

-- Finished jobs that were last touched before p_before -> cleaned. The tick moves them to the archive later. Returns how many.
create function public.fn_job_clean(p_before timestamptz, p_limit int default 1000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_was record;
    v_cleaned bigint := 0;
begin
    for v_was in
        with old as materialized (
            select q.id, q.status from public.job_queue q
             where q.status in ('succeeded', 'cancelled', 'failed', 'dead_letter') and q.updated_at < p_before
             limit p_limit for update skip locked
        ), done as (
            update public.job_queue q set status = 'cleaned', updated_at = clock_timestamp() from old o where q.id = o.id
            returning q.id, o.status
        )
        select d.status, array_agg(d.id) as ids from done d group by d.status
    loop
        perform gov_handoff.gov_job_log(v_was.ids, array[v_was.status, 'cleaned'], null, 'cleaned');
        if v_was.status = 'dead_letter' then
            perform gov_handoff.gov_job_letter_close(v_was.ids, 'discarded', 'cleaned', session_user::text);
        end if;
        v_cleaned := v_cleaned + cardinality(v_was.ids);
    end loop;
    return v_cleaned;
end
$$;

-- Privileges -------------------------------------------------------------------------------------------------------

comment on function public.fn_job_may_enqueue(text) is 'whether the session may enqueue jobs for a kind of executor';
comment on function public.fn_job_enqueue_many(jsonb) is 'enqueues jobs; one answer for each item';
comment on function public.fn_job_enqueue(text, text, text, text, text, jsonb, int, timestamptz, timestamptz, int, text, text) is 'enqueues one job; the same key again returns the same id and changes nothing';
comment on function public.fn_mot_graph_emit(jsonb) is 'enqueues a graph of jobs in one commit: all or none';
comment on function public.fn_executor_register(text, text, text, name) is 'registers an executor, and binds it to a role';
comment on function public.fn_executor_disable(text, text) is 'disables an executor: it claims nothing more';
comment on function public.fn_executor_heartbeat(text) is 'an executor says that it lives';
comment on function public.fn_job_subscribe(text, text, text, int, int, boolean, text) is 'which jobs an executor may claim, and how many at once';
comment on function public.fn_job_producer_grant(name, text, boolean, text) is 'lets a role enqueue jobs for a kind of executor, or takes that back';
comment on function public.fn_job_claim(text, int, interval, boolean) is 'leases ready jobs to an executor, under a new token';
comment on function public.fn_job_start(uuid[], bigint[]) is 'leased to in_progress';
comment on function public.fn_job_heartbeat(text, uuid[], bigint[], interval) is 'extends leases, and is a heartbeat of the executor';
comment on function public.fn_job_complete(uuid[], bigint[], jsonb) is 'in_progress to succeeded';
comment on function public.fn_job_fail(uuid, bigint, text, boolean) is 'ends an attempt: retry, failed or dead letter';
comment on function public.fn_job_release(uuid[], bigint[]) is 'gives jobs back; costs no attempt';
comment on function public.fn_job_cancel(uuid, text, text) is 'cancels a job; discards a dead letter';
comment on function public.fn_job_supersede(uuid, uuid, text) is 'cancels a job because another one takes its place';
comment on function public.fn_job_redrive(uuid[], text) is 'dead_letter to queued, with identity and history kept';
comment on function public.fn_job_clean(timestamptz, int) is 'marks finished jobs as cleaned';


-- Roles of the queue: a producer enqueues, an executor claims and finishes, an operator registers and decides. Nobody writes a table.
do $$
declare
    f record;
begin
    for f in
        select p.oid::regprocedure as sig, p.proname
          from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname ~ '^gov_(job|executor)_'
            or p.pronamespace = 'public'::regnamespace and p.proname ~ '^fn_(job|executor|mot)_'
    loop
        execute format('alter function %s owner to gov_handoff_owner', f.sig);
        execute format('revoke all on function %s from public', f.sig);
        if f.proname in ('fn_job_enqueue', 'fn_job_enqueue_many', 'fn_job_may_enqueue', 'fn_mot_graph_emit') then
            execute format('grant execute on function %s to gov_handoff_producer, gov_handoff_operator', f.sig);
        elsif f.proname in ('fn_job_claim', 'fn_job_start', 'fn_job_heartbeat', 'fn_job_complete', 'fn_job_fail', 'fn_job_release',
                'fn_executor_heartbeat') then
            execute format('grant execute on function %s to gov_handoff_executor', f.sig);
        elsif f.proname ~ '^fn_' then
            execute format('grant execute on function %s to gov_handoff_operator', f.sig);
        end if;
    end loop;
end
$$;
grant usage on schema public, gov_handoff to gov_handoff_producer, gov_handoff_executor;
grant select, insert, update, delete on public.job_queue to gov_handoff_owner;
grant select, insert on public.job_step, public.job_evidence, public.job_archive, public.job_lane to gov_handoff_owner;
grant select on public.job_transition to gov_handoff_owner;
grant select on public.job_transition_rule to gov_handoff_owner, gov_handoff_worker, gov_handoff_operator, gov_handoff_producer,
    gov_handoff_executor, gov_handoff_observer;
grant select, insert, update, delete on public.job_executor, public.job_producer, public.job_subscription, public.job_ready,
    public.job_lane_head, public.job_lane_floor, public.job_deferred, public.job_dependency, public.job_deadline, public.job_claim, public.job_running
    to gov_handoff_owner;
grant usage on sequence public.job_lane_id_seq, public.job_ready_pos_seq, public.job_token_seq to gov_handoff_owner;
grant select on public.job_queue, public.job_transition, public.job_evidence, public.job_archive, public.job_executor,
    public.job_producer, public.job_subscription, public.job_dependency, public.job_ready, public.job_deferred, public.job_claim
    to gov_handoff_operator;
insert into public.dot_config (key, value)
select t.key, t.value from (values ('job.notify', 'on'), ('job.executor.silent_ms', '60000')) as t (key, value)
 where not exists (select from public.dot_config c where c.key = t.key);
