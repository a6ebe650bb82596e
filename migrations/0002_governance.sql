-- Tables of our own: cursors, open id ranges, stream position, frontier, the candidate store, job subscriptions, event
-- types. This step only adds objects; 0002_governance.down.sql removes all of them again.

-- The gates live in a schema of their own, in which no other role may create objects. In `public` other roles often may.
-- A function of the same name, with arguments that match better, would then be called instead of ours, with the rights of
-- the gates' owner.
create schema gov_handoff;

-- Locks are tables, on which only the gates' owner has a privilege. An advisory lock could be taken by any role that may
-- connect. The tables hold no rows. Reading one takes it in shared mode; `lock table …` takes it in exclusive mode.
--
--   batches      shared by every gate that records; exclusive for types, trust, definitions and retention, which no batch may overlap
--   definitions  exclusive for a gate that changes a source
--   rehearsals   exclusive for a selftest, alone and for as long as it runs (0009)
--   feed         exclusive for a gate that gives positions in the feed, and for retention (0019)
--
-- A transaction that takes several locks takes them in this order:
--
--   1. batches
--   2. definitions
--   3. signals: rows of event_outbox and event_pending
--   4. marks: rows of groups by key, then rows of objects by key
--   5. feed
--   6. the row of its lease
--   7. the rows of cursor and stream position
--
-- The gates of jobs take batches first as well. The order among their own rows is in 0023. tests/gates.rs asks every gate for
-- 5 to 7 on a server, and tests/architecture/statements.rs reads every gate for the order in which it calls.
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

-- Groups and objects. Marks are written by every worker that records or seeds; `input_*` by gov_input_gate; verdicts,
-- counts and what a scan remembers (`scan_*`) by gov_candidate_scan. A mark raises the generation. A scan clears `dirty`
-- only where the generation is still the one it read, so a mark that arrives during a scan is never lost.
--
-- No column that changes often is in an index, so that most updates stay in their page.
create table public.gov_candidate_group (
    group_key        text        not null primary key,
    dims             jsonb       not null default '{}',
    dirty            boolean     not null default true,
    dirty_reason     text,
    dirtied_at       timestamptz,
    generation       bigint      not null default 1,
    changes          bigint      not null default 0,
    -- The latest change, by (last_occurred_at, last_kind): the same whatever the order of delivery.
    last_occurred_at timestamptz,
    last_kind        text,
    -- How many objects the scan counts here, and how many of them are accepted, rejected by the input gate, or retired.
    members          bigint      not null default 0,
    accepted         bigint      not null default 0,
    rejected         bigint      not null default 0,
    retired          bigint      not null default 0,
    verdict          text,
    verdict_rule     text,
    severity         text,
    -- The ruleset version and the time of the last scan that reached the end of the group.
    scanned_version  integer,
    scanned_at       timestamptz,
    stale_after      timestamptz,
    -- How far the scan has come: every member at or below (scan_mark, scan_key), in the order (group_mark,
    -- candidate_key), is judged under scan_version or a later one. Null: the next scan begins with the first member.
    scan_version     integer,
    scan_mark        bigint      not null default 0,
    scan_key         text        not null default '',
    created_at       timestamptz not null default now()
) with (fillfactor = 70);

-- One row for each object, under the ruleset version that it was last judged by. When the version rises, the scan of the
-- object's group carries the row to the new version, with all that is known of the object. So there is never a second row
-- for one object and one version, and the table does not grow with the versions.
create table public.gov_candidate_state (
    candidate_key       text        not null primary key,
    ruleset_version     integer     not null,
    object_type         text        not null,
    -- The latest change, by (last_occurred_at, group_key, source_name, source_key, last_kind), is the same whatever the
    -- order of delivery. The object belongs to the group of this change.
    group_key           text        not null,
    -- The generation of its group when the object was last marked. The group's row is locked from then until the commit,
    -- so a scan that reads the group at generation n sees every mark up to n. The largest bigint: an older change was
    -- delivered late, through another group.
    group_mark          bigint      not null default 9223372036854775807,
    dirty               boolean     not null default true,
    dirty_reason        text,
    dirtied_at          timestamptz,
    generation          bigint      not null default 1,
    last_occurred_at    timestamptz,
    last_kind           text,
    -- The source row of the latest change.
    source_name         text,
    source_key          text,
    -- The source row that this object was born as, `source:key`. A second one makes the key ambiguous.
    born_key            text,
    key_conflict        boolean     not null default false,
    -- A retirement is final.
    retired             boolean     not null default false,
    input_quality_state text        not null default 'pending',
    input_reason        text,
    input_checked_at    timestamptz,
    candidate_verdict   text,
    verdict_rule        text,
    severity            text,
    -- The group and the class in which the scan counts this object. When the object moved, that group is scanned again.
    scanned_group       text,
    counted_as          text,
    scanned_at          timestamptz,
    stale_after         timestamptz,
    created_at          timestamptz not null default now(),
    constraint gov_candidate_state_input_known check (input_quality_state = any ('{pending, ok, rejected}')),
    constraint gov_candidate_state_reason check ((input_quality_state = 'rejected') = (input_reason is not null)),
    constraint gov_candidate_state_counted check ((scanned_group is null) = (counted_as is null)
        and counted_as = any ('{pending, accepted, rejected, retired}'))
) with (fillfactor = 80);
-- The members of a group, and among them those that were marked since the last scan.
create index gov_candidate_state_group on public.gov_candidate_state (group_key, group_mark);
-- What the input gate has to look at, source by source.
create index gov_candidate_state_pending on public.gov_candidate_state (source_name, candidate_key) where input_quality_state = 'pending';
comment on table public.gov_candidate_group is 'governance groups: dirty marks, counts of members and the verdict of the last scan';
comment on table public.gov_candidate_state is 'one row per object: its latest change, what the input gate found and the verdict under ruleset_version';

-- A handoff that concerns many groups. The intake writes one row, whatever the number of groups; the candidate scan
-- expands it: it marks the groups that have the dimensions of `scope`, in the order of their keys, up to `expanded_to` so
-- far. A group that the expansion has not reached counts as dirty from the commit of this row.
create table public.gov_invalidation (
    id              bigint      generated always as identity primary key,
    scope           jsonb       not null,
    kind            text        not null,
    ruleset_version integer     not null,
    source_name     text        not null,
    source_key      text        not null,
    created_at      timestamptz not null default clock_timestamp(),
    expanded_to     text,
    -- How many groups the expansion has read, and how many of them it has marked.
    seen            bigint      not null default 0,
    marked          bigint      not null default 0,
    started_at      timestamptz,
    done_at         timestamptz,
    -- A later invalidation of at least these groups stands for this one, which had not begun.
    done_by         bigint,
    constraint gov_invalidation_scope_is_object check (jsonb_typeof(scope) = 'object')
);
comment on table public.gov_invalidation is 'one row per handoff that concerns many groups; the candidate scan marks the groups';
create index gov_invalidation_open on public.gov_invalidation (id) where done_at is null;

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
    unique nulls not distinct (executor_id, job_kind, event_domain),
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
