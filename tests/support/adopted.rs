//! The substrate as the live system has it, written by hand after the documents and not after our migrations: what they
//! leave out is left out, what they call for is there, and there is more in places than we need.

use super::fixture::LEAVE_ROOM;
use super::{Database, fresh_database};

/// Sources with the columns that are certain; ids from sequences of their own; nothing that only our shape has.
const SUBSTRATE: &str = "
create sequence birth_registry_id_seq;
create table birth_registry (
    id integer primary key default nextval('birth_registry_id_seq'),
    entity_code text not null, collection_name text not null, canonical_address text,
    born_at timestamptz default now(), status varchar(40), source_system text, actor_ref text,
    birth_payload jsonb, species_code text, dot_origin text
);
alter sequence birth_registry_id_seq owned by birth_registry.id;
create index idx_birth_collection on birth_registry (collection_name, entity_code);
create table registry_changelog (
    id serial primary key,
    entity_type text, entity_code text, action text, field_name text, old_value text, new_value text,
    \"timestamp\" timestamp without time zone not null default now(),
    alert_level text, resolved boolean default false, actor_ref text, source_system text
);
create function live_touch() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger live_trigger before insert on birth_registry for each row execute function live_touch();
create table pivot_definitions (
    id serial primary key, pivot_code text not null, status text not null default 'active', definition jsonb,
    created_at timestamptz default now(), actor_ref text, source_system text
);
create table governance_ruleset (
    id serial primary key, ruleset_code text not null, version integer not null default 1, scope text, rules jsonb,
    created_at timestamptz default now(), actor_ref text, source_system text
);

create table event_outbox (
    id uuid primary key default gen_random_uuid(),
    event_domain text not null, event_type text not null, event_stream text not null, event_severity text,
    delivery_lane text not null default 'immediate',
    event_subject_table text, event_subject_ref uuid,
    canonical_address text not null check (btrim(canonical_address) != ''),
    actor_ref text not null check (btrim(actor_ref) != ''),
    source_system text not null, correlation_id text,
    payload_classification text not null default 'safe_metadata'
        check (payload_classification in ('safe_metadata', 'restricted')),
    safe_payload jsonb not null default '{}'::jsonb,
    occurred_at timestamptz not null default now(), created_at timestamptz not null default now(),
    check (event_domain in ('iu', 'piece', 'staging', 'birth_registry', 'governance', 'tac', 'kg', 'system', 'dot', 'health')),
    check (event_stream in ('comment', 'review', 'update', 'birth', 'task', 'alert', 'health')),
    check (event_severity is null or event_severity in ('info', 'warning', 'critical')),
    check (not (safe_payload ? 'body') and not (safe_payload ? 'content') and not (safe_payload ? 'vector')
           and not (safe_payload ? 'secret') and not (safe_payload ? 'token'))
);
create unique index uq_event_outbox_subject_type
    on event_outbox (event_domain, event_type, event_subject_table, event_subject_ref) where event_subject_ref is not null;
create index idx_event_outbox_domain_stream_created on event_outbox (event_domain, event_stream, created_at desc);
create table event_pending (
    id uuid primary key default gen_random_uuid(),
    event_domain text, event_type_hint text, entity_table text, entity_ref uuid,
    canonical_address text not null, actor_ref text not null, capture_payload jsonb,
    processed_at timestamptz, error_count integer not null default 0, last_error text
);
create table event_type_registry (
    event_domain text not null, event_type text not null, event_stream text not null, active boolean not null default true,
    primary key (event_domain, event_type)
);
insert into event_type_registry values ('iu', 'draft_created', 'birth');
create table queue_heartbeat (
    executor_name text primary key, executor_kind text not null, last_tick_at timestamptz not null default now(),
    last_tick_status text not null default 'ok', ticks_total bigint not null default 0, current_job_id uuid, lease_owner text,
    metadata jsonb not null default '{}', created_at timestamptz default now(), updated_at timestamptz default now()
);
insert into queue_heartbeat (executor_name, executor_kind) values ('iu_outbound_default', 'PG_worker');
create table iu_route_dead_letter (
    id uuid primary key default gen_random_uuid(),
    worker_name text not null, event_ref uuid, event_domain text, event_type text, route_code text, idempotency_key text,
    failure_code text, failure_detail text, attempts integer not null default 0, event_snapshot jsonb,
    first_failed_at timestamptz not null default now(), last_failed_at timestamptz not null default now(),
    resolved_at timestamptz, resolution text check (resolution in ('replayed', 'discarded', 'superseded')),
    check ((resolved_at is null) = (resolution is null))
);
create table iu_route_worker_cursor (
    worker_name text not null, event_domain text not null default 'iu', last_created_at timestamptz, last_event_id uuid,
    last_run_at timestamptz, last_run_summary jsonb not null default '{}', events_seen bigint not null default 0,
    attempts_written bigint not null default 0, dead_lettered bigint not null default 0, metadata jsonb not null default '{}',
    created_at timestamptz default now(), updated_at timestamptz default now(), primary key (worker_name, event_domain)
);
insert into iu_route_worker_cursor (worker_name, events_seen, attempts_written) values ('iu_outbound_default', 68, 67);
";

/// The tables that [`adopted`] makes.
pub const TABLES: [&str; 10] = [
    "birth_registry",
    "registry_changelog",
    "pivot_definitions",
    "governance_ruleset",
    "event_outbox",
    "event_pending",
    "event_type_registry",
    "queue_heartbeat",
    "iu_route_dead_letter",
    "iu_route_worker_cursor",
];

/// A database that has the live substrate and nothing of ours.
pub async fn adopted() -> Database {
    let db = fresh_database(None).await;
    db.client.batch_execute(SUBSTRATE).await.expect("the live substrate");
    db.client.batch_execute(LEAVE_ROOM).await.expect("leave room for given ids");
    db
}
