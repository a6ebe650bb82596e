-- Tables of our own: cursors, open id ranges, stream position, frontier, the candidate store, job subscriptions, event
-- types. This step only adds objects; 0002_governance.down.sql removes all of them again.

-- The gates live in a schema of their own, in which no other role may create objects. In `public` other roles often may.
-- A function of the same name, with arguments that match better, would then be called instead of ours, with the rights of
-- the gates' owner.
create schema gov_handoff;

-- Locks are tables, on which only the gates' owner has a privilege. An advisory lock could be taken by any role that may
-- connect. The tables hold no rows. Reading one takes it in shared mode; `lock table … in access exclusive mode` takes it
-- in exclusive mode. A transaction that takes several locks takes them in this order, and before any row lock: batches,
-- definitions, then the rows of lease and cursor.
--
--   batches      shared by every gate that records; exclusive for types, trust, definitions and retention, which no batch may overlap
--   definitions  exclusive for a gate that changes a source
--   rehearsals   exclusive for a selftest, alone and for as long as it runs (0009)
create table gov_handoff.batches ();
create table gov_handoff.definitions ();

create table public.gov_worker_cursor (
    worker_name       text        not null,
    source_name       text        not null,
    event_domain      text        not null default 'governance',
    last_watermark_ts timestamptz,
    last_watermark_id text,
    last_run_at       timestamptz,
    last_run_summary  jsonb       not null default '{}',
    events_seen       bigint      not null default 0,
    attempts_written  bigint      not null default 0,
    dead_lettered     bigint      not null default 0,
    phase             text,
    metadata          jsonb       not null default '{}',
    created_at        timestamptz not null default now(),
    updated_at        timestamptz not null default now(),
    primary key (worker_name, source_name),
    constraint gov_worker_cursor_phase_known check (phase = any ('{seeding, reconciling, incremental}'))
);
-- The definition is large, and every batch rewrites the rest of the row. Stored out of line, the definition is neither
-- copied nor logged each time.
alter table public.gov_worker_cursor set (toast_tuple_target = 128, fillfactor = 70);
alter table public.gov_worker_cursor alter column metadata set storage external;
comment on table public.gov_worker_cursor is 'one row per worker and source; metadata is the source definition, the truth at run time';

-- Which table a source's name stands for. The name is part of the identity of every signal. Rows of another table under
-- the same name would look as if they were handed off; the same table under another name would be handed off again. This
-- holds for as long as there are signals, so the entry stays when a source is removed. A name that never recorded
-- anything is released.
create table public.gov_source_table (
    source_name  text    not null primary key,
    table_schema text    not null,
    table_name   text    not null,
    id_column    text    not null,
    -- integer, uuid or text: the widths of an integer give a row the same identity.
    id_family    text    not null,
    -- A renamed table is still the same table.
    relation     oid,
    -- At least one of its rows was handed off.
    used         boolean not null default false
);

-- Which definition of a source is in force. A gate that records a row is given the definition that mapped the row, and
-- rejects any other than the one in force. So a row that is committed after `sources apply` returned is never mapped by
-- the former definition.
create table public.gov_source_version (
    worker_name  text        not null,
    source_name  text        not null,
    version      uuid        not null unique,
    -- By kind of signal: how a signal names its row, and since when. Older signals may name the same row differently. The
    -- entry stays when the source is removed, because its signals stay.
    named        jsonb       not null default '{}',
    primary key (worker_name, source_name)
);

-- Ids of a source that were never seen. The range that reaches the end of the type is the tail; every other range is a
-- hole. An id leaves the ranges only in the transaction that records its handoff. The argument for no loss rests on this.
create table public.gov_worker_gap (
    worker_name text        not null,
    source_name text        not null,
    lo          bigint      not null,
    hi          bigint      not null,
    hot         boolean     not null default true,
    opened_at   timestamptz not null default clock_timestamp(),
    primary key (worker_name, source_name, lo),
    constraint gov_worker_gap_not_empty check (lo <= hi)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index gov_worker_gap_hot on public.gov_worker_gap (worker_name, source_name, lo) include (hi) where hot;

-- Up to which position the rows of a replication slot are durable on our side. The slot's own confirmed position may go
-- back after a crash of the server, or run ahead when another client consumed the slot. Only this row says what was
-- recorded.
create table public.gov_stream_position (
    slot_name         text        not null primary key,
    system_identifier text        not null,
    timeline          integer     not null,
    durable_lsn       pg_lsn      not null,
    updated_at        timestamptz not null default now()
);

-- Repairs by source and reason since the beginning. The history of certificates is retired, and the latest certificate
-- counts only its own pass; a counter must not go down because of either. The rows do not depend on the cursor: a source
-- that is removed and registered again goes on counting. Counted by gov_certificate_put.
create table public.gov_repair_total (
    worker_name text   not null,
    source_name text   not null,
    reason      text   not null,
    repaired    bigint not null,
    primary key (worker_name, source_name, reason),
    -- A word of our own, never text that came from a row.
    constraint gov_repair_total_reason_is_a_word check (reason ~ '^[a-z_]{1,40}$'),
    constraint gov_repair_total_positive check (repaired > 0)
);

create table public.gov_worker_frontier (
    worker_name       text        not null,
    source_name       text        not null,
    frontier          xid8        not null,
    system_identifier text        not null,
    certified_lsn     pg_lsn,
    certified_at      timestamptz not null default now(),
    -- What was read: the relation and its file. A table that was swapped, restored or rewritten may hold rows whose
    -- transactions are below the frontier and that no pass has read.
    relation          oid,
    filenode          oid,
    -- How many ids left the open ranges without being seen. Rows are counted against the ids that were seen.
    certified_away    numeric     not null default 0,
    primary key (worker_name, source_name)
);

create table public.gov_candidate_group (
    group_key       text        not null primary key,
    dims            jsonb       not null default '{}',
    dirty           boolean     not null default true,
    dirty_reason    text,
    dirtied_at      timestamptz,
    generation      bigint      not null default 1,
    changes         bigint      not null default 0,
    last_occurred_at timestamptz,
    scanned_at      timestamptz,
    stale_after     timestamptz,
    created_at      timestamptz not null default now()
) with (fillfactor = 70);

create table public.gov_candidate_state (
    candidate_key       text        not null,
    ruleset_version     integer     not null,
    object_type         text        not null,
    group_key           text        not null,
    dirty               boolean     not null default true,
    dirty_reason        text,
    dirtied_at          timestamptz,
    generation          bigint      not null default 1,
    last_occurred_at    timestamptz,
    input_quality_state text        not null default 'pending',
    candidate_verdict   text,
    scanned_at          timestamptz,
    stale_after         timestamptz,
    created_at          timestamptz not null default now(),
    primary key (candidate_key, ruleset_version)
);

create table public.job_subscription (
    subscription_id uuid        primary key default gen_random_uuid(),
    executor_id     text        not null,
    executor_kind   text        not null,
    job_kind        text,
    event_domain    text,
    priority_floor  smallint    not null default 0,
    max_parallel    integer     not null default 1,
    enabled         boolean     not null default false,
    notes           text,
    registered_by   text        not null,
    registered_at   timestamptz not null default now(),
    unique (executor_id, job_kind, event_domain),
    constraint job_subscription_executor_known check (executor_kind in
        ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
    constraint job_subscription_parallel_positive check (max_parallel >= 1)
);

-- The ten kinds and our own events. They ship inactive: an operator activates them, and the captures are drained. Only
-- columns that every known shape of the registry has are named here.
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.handoff.' || t.kind, t.stream, false
  from (values
    ('object_born', 'birth'), ('object_registered', 'birth'), ('collection_changed', 'update'), ('count_changed', 'update'),
    ('object_retired', 'update'), ('source_changed', 'update'), ('axis_introduced', 'update'), ('policy_changed', 'update'),
    ('authority_changed', 'update'), ('ruleset_changed', 'update'), ('heartbeat', 'health'), ('certified', 'health')
  ) as t (kind, stream)
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.handoff.' || t.kind);

insert into public.dot_config (key, value)
select t.key, t.value
  from (values ('governance.ruleset_version', '1'), ('event.retry.max_attempts', '5'),
               ('event.retry.base_ms', '200'), ('event.retry.cap_ms', '30000'),
               ('governance.holes.kept', '10000')) as t (key, value)
 where not exists (select from public.dot_config c where c.key = t.key);
