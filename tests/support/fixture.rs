//! One set of source rows that comes to every kind of handoff. Ids and times are given, so that two databases hold
//! the same rows.

/// What stands in every content column; it must be found nowhere else.
pub const CANARY: &str = "canary-7f3a-in-the-content";

/// Every kind at least once from each source that can yield it, by every word that its rule names.
pub const ALL_KINDS: &str = "
insert into birth_registry (id, entity_code, collection_name, canonical_address, born_at, status, source_system, actor_ref, birth_payload)
values (1, 'law-1', 'laws', null, '2026-01-02 03:04:05.678901+00', 'draft', 'importer', 'user:huyen', '{\"x\": \"canary-7f3a-in-the-content\"}'),
       (2, 'law-2', 'laws', 'addr://laws/2', '2026-01-02 03:04:06+07', 'registered', null, null, '{\"x\": \"canary-7f3a-in-the-content\"}'),
       (3, 'Điều 45 | §=%', 'văn bản', null, '1999-12-31 23:59:59.999999+00', 'registered', 'importer', 'agent:codex', null),
       (7, 'behind-a-hole', 'laws', null, '2026-01-02 03:04:05.678901+00', null, '', '', null),
       (-5, 'negative', 'laws', null, '0044-03-15 12:00:00+00 BC', null, 'old', 'x', null);

insert into registry_changelog (id, entity_type, entity_code, action, field_name, old_value, new_value, \"timestamp\", actor_ref, source_system)
select n, t.entity_type, 'code-' || n, t.action, 'field', 'canary-7f3a-in-the-content', 'canary-7f3a-in-the-content',
       timestamp '2026-03-29 02:30:00.000001' + n * interval '1 minute', 'user:huyen', t.producer
  from (values
    (1, 'species', 'register', 'importer'), (2, 'collection', 'update', null), (3, 'species', 'count_changed', ''),
    (4, 'species', 'recount', 'importer'), (5, 'species', 'retire', 'importer'), (6, 'species', 'supersede', 'importer'),
    (7, 'species', 'source_changed', 'importer'), (8, 'species', 'migrate', 'importer'), (9, 'axis', 'add', 'importer'),
    (10, 'pivot', 'add', 'importer'), (11, 'law', 'update', 'importer'), (12, 'policy', 'update', 'importer'),
    (13, 'normative', 'update', 'importer'), (14, 'jurisdiction', 'update', 'importer'),
    (15, 'measurement', 'update', 'importer'), (16, 'owner', 'update', 'importer'), (17, 'approval', 'update', 'importer'),
    (18, 'exception', 'update', 'importer'), (19, 'ruleset', 'update', 'importer'),
    (20, 'collection', 'register', 'importer'), (21, 'nothing we know', 'of', 'importer'),
    (22, null, null, null)
  ) as t (n, entity_type, action, producer);

insert into pivot_definitions (id, pivot_code, definition, created_at, actor_ref, source_system)
values (1, 'by-year', '{\"x\": \"canary-7f3a-in-the-content\"}', '2026-01-02 03:04:05+00', 'user:huyen', 'designer');

insert into governance_ruleset (id, ruleset_code, version, scope, rules, created_at, actor_ref, source_system)
values (1, 'core', 2, 'all', '{\"x\": \"canary-7f3a-in-the-content\"}', '2026-01-02 03:04:05+00', 'user:huyen', 'council');

insert into event_outbox (id, event_domain, event_type, event_stream, event_subject_table, canonical_address, actor_ref,
                          source_system, safe_payload, occurred_at)
values ('0b4c1c1e-0000-4000-8000-000000000001', 'iu', 'draft_created', 'birth', 'information_unit', 'iu://1', 'gpt', 'trigger',
        '{\"x\": \"canary-7f3a-in-the-content\"}', '2026-01-02 03:04:05+00'),
       ('0b4c1c1e-0000-4000-8000-000000000002', 'tac', 'piece_moved', 'update', 'piece', 'tac://2', 'opus', 'trigger',
        '{\"x\": \"canary-7f3a-in-the-content\"}', '2026-01-02 03:04:06+00'),
       ('0b4c1c1e-0000-4000-8000-000000000003', 'iu', 'commented', 'comment', 'information_unit', 'iu://3', 'gpt', 'trigger',
        '{\"x\": \"canary-7f3a-in-the-content\"}', '2026-01-02 03:04:07+00'),
       ('0b4c1c1e-0000-4000-8000-000000000004', 'health', 'checked', 'update', 'probe', 'health://4', 'cron', 'trigger',
        '{}', '2026-01-02 03:04:08+00');

";

/// Ids that are drawn, as our own audit rows draw theirs, leave those that the fixtures give alone. Before the first daemon.
pub const LEAVE_ROOM: &str = "
select setval(pg_get_serial_sequence(t, 'id'), 1000)
  from unnest(array['birth_registry', 'registry_changelog', 'pivot_definitions', 'governance_ruleset']) t";

/// The ten kinds, as the outbox names them.
pub const TEN: [&str; 10] = [
    "authority_changed",
    "axis_introduced",
    "collection_changed",
    "count_changed",
    "object_born",
    "object_registered",
    "object_retired",
    "policy_changed",
    "ruleset_changed",
    "source_changed",
];

/// How many handoffs [`ALL_KINDS`] comes to: signals, and rows that no rule knows.
pub const SIGNALS: i64 = BIRTHS + CHANGES + OTHERS;
const BIRTHS: i64 = 5 + 2;
const CHANGES: i64 = 19 + 2;
const OTHERS: i64 = 1 + 1 + 2;
pub const UNMAPPED: i64 = 2;
