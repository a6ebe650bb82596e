-- The columns that the gates write or read. A live table may have more; it may not have less.
select w.t, w.c, w.type, format_type(a.atttypid, null)
  from (values
    ('event_outbox', 'id', 'uuid'), ('event_outbox', 'event_domain', 'text'), ('event_outbox', 'event_type', 'text'),
    ('event_outbox', 'event_stream', 'text'), ('event_outbox', 'event_severity', 'text'),
    ('event_outbox', 'delivery_lane', 'text'), ('event_outbox', 'event_subject_table', 'text'),
    ('event_outbox', 'event_subject_ref', 'uuid'), ('event_outbox', 'canonical_address', 'text'),
    ('event_outbox', 'actor_ref', 'text'), ('event_outbox', 'source_system', 'text'),
    ('event_outbox', 'payload_classification', 'text'), ('event_outbox', 'safe_payload', 'jsonb'),
    ('event_outbox', 'occurred_at', 'timestamp with time zone'),
    ('event_pending', 'id', 'uuid'), ('event_pending', 'event_domain', 'text'), ('event_pending', 'event_type_hint', 'text'),
    ('event_pending', 'entity_table', 'text'), ('event_pending', 'entity_ref', 'uuid'),
    ('event_pending', 'canonical_address', 'text'), ('event_pending', 'actor_ref', 'text'),
    ('event_pending', 'capture_payload', 'jsonb'), ('event_pending', 'processed_at', 'timestamp with time zone'),
    ('event_pending', 'error_count', 'integer'), ('event_pending', 'last_error', 'text'),
    ('event_type_registry', 'event_domain', 'text'), ('event_type_registry', 'event_type', 'text'),
    ('event_type_registry', 'event_stream', 'text'), ('event_type_registry', 'active', 'boolean'),
    ('queue_heartbeat', 'executor_name', 'text'), ('queue_heartbeat', 'executor_kind', 'text'),
    ('queue_heartbeat', 'last_tick_at', 'timestamp with time zone'), ('queue_heartbeat', 'last_tick_status', 'text'),
    ('queue_heartbeat', 'ticks_total', 'bigint'), ('queue_heartbeat', 'lease_owner', 'text'),
    ('queue_heartbeat', 'metadata', 'jsonb'), ('queue_heartbeat', 'updated_at', 'timestamp with time zone'),
    ('iu_route_dead_letter', 'worker_name', 'text'), ('iu_route_dead_letter', 'event_ref', 'uuid'),
    ('iu_route_dead_letter', 'idempotency_key', 'text'), ('iu_route_dead_letter', 'failure_code', 'text'),
    ('iu_route_dead_letter', 'failure_detail', 'text'), ('iu_route_dead_letter', 'event_snapshot', 'jsonb'),
    ('iu_route_dead_letter', 'resolved_at', 'timestamp with time zone'), ('iu_route_dead_letter', 'resolution', 'text'),
    ('system_issues', 'issue_kind', 'text'), ('system_issues', 'coalesce_key', 'text'), ('system_issues', 'severity', 'text'),
    ('system_issues', 'detail', 'jsonb'), ('system_issues', 'occurrence_count', 'bigint'),
    ('dot_config', 'key', 'text'), ('dot_config', 'value', 'text'),
    ('registry_changelog', 'entity_type', 'text'), ('registry_changelog', 'entity_code', 'text'),
    ('registry_changelog', 'action', 'text'), ('registry_changelog', 'actor_ref', 'text'),
    ('registry_changelog', 'source_system', 'text'), ('registry_changelog', 'timestamp', 'timestamp without time zone')
  ) as w (t, c, type)
  left join pg_attribute a on a.attrelid = to_regclass('public.' || w.t) and a.attname = w.c and not a.attisdropped
 where a.attname is null or format_type(a.atttypid, null) <> w.type
 order by 1, 2
