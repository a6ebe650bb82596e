-- The columns that the gates read or write, the columns that they cannot fill, and the keys that they rely on. A live
-- table may have additional columns; it may not lack one.
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
    ('iu_route_dead_letter', 'id', 'uuid'), ('iu_route_dead_letter', 'attempts', 'integer'),
    ('iu_route_dead_letter', 'worker_name', 'text'), ('iu_route_dead_letter', 'event_ref', 'uuid'),
    ('iu_route_dead_letter', 'idempotency_key', 'text'), ('iu_route_dead_letter', 'failure_code', 'text'),
    ('iu_route_dead_letter', 'failure_detail', 'text'), ('iu_route_dead_letter', 'event_snapshot', 'jsonb'),
    ('iu_route_dead_letter', 'resolved_at', 'timestamp with time zone'), ('iu_route_dead_letter', 'resolution', 'text'),
    ('system_issues', 'issue_kind', 'text'), ('system_issues', 'coalesce_key', 'text'), ('system_issues', 'severity', 'text'),
    ('system_issues', 'detail', 'jsonb'), ('system_issues', 'occurrence_count', 'bigint'),
    ('dot_config', 'key', 'text'), ('dot_config', 'value', 'text'),
    ('event_subscription', 'recipient_ref', 'text'), ('event_subscription', 'event_domain', 'text'),
    ('event_subscription', 'event_type', 'text'), ('event_subscription', 'event_stream', 'text'),
    ('event_subscription', 'scope_subject_table', 'text'), ('event_subscription', 'scope_filter', 'jsonb'),
    ('event_subscription', 'mute', 'boolean'),
    ('registry_changelog', 'entity_type', 'text'), ('registry_changelog', 'entity_code', 'text'),
    ('registry_changelog', 'action', 'text'), ('registry_changelog', 'actor_ref', 'text'),
    ('registry_changelog', 'source_system', 'text'), ('registry_changelog', 'timestamp', 'timestamp without time zone')
  ) as w (t, c, type)
  left join pg_attribute a on a.attrelid = to_regclass('public.' || w.t) and a.attname = w.c and not a.attisdropped
 where a.attname is null or format_type(a.atttypid, null) <> w.type
union all
select c.relname::text, a.attname::text, 'nullable or with a default, because we do not fill it', 'not null without a default'
  from (values
    ('event_outbox', array['id', 'event_domain', 'event_type', 'event_stream', 'event_severity', 'delivery_lane',
        'event_subject_table', 'event_subject_ref', 'canonical_address', 'actor_ref', 'source_system',
        'payload_classification', 'safe_payload', 'occurred_at']),
    ('event_pending', array['id', 'event_domain', 'event_type_hint', 'entity_table', 'entity_ref', 'canonical_address',
        'actor_ref', 'capture_payload', 'error_count', 'last_error']),
    ('event_type_registry', array['event_domain', 'event_type', 'event_stream', 'active']),
    ('queue_heartbeat', array['executor_name', 'executor_kind', 'last_tick_at', 'ticks_total', 'metadata']),
    ('iu_route_dead_letter', array['worker_name', 'event_ref', 'event_domain', 'event_type', 'route_code',
        'idempotency_key', 'failure_code', 'failure_detail', 'attempts', 'event_snapshot']),
    ('system_issues', array['issue_kind', 'coalesce_key', 'severity', 'source_system', 'detail']),
    ('event_subscription', array['recipient_ref', 'event_domain', 'event_type', 'event_stream', 'scope_subject_table',
        'scope_filter', 'mute']),
    ('dot_config', array['key', 'value']),
    ('registry_changelog', array['entity_type', 'entity_code', 'action', 'timestamp', 'actor_ref', 'source_system'])
  ) as f (t, filled)
  join pg_class c on c.oid = to_regclass('public.' || f.t)
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where a.attnotnull and not a.atthasdef and a.attidentity = '' and a.attname <> all (f.filled)
union all
select k.t, '(' || array_to_string(k.columns, ', ') || ')', 'unique', 'not unique'
  from (values
    ('event_outbox', array['event_domain', 'event_type', 'event_subject_table', 'event_subject_ref']),
    ('event_outbox', array['id']), ('event_pending', array['id']), ('queue_heartbeat', array['executor_name']),
    ('system_issues', array['coalesce_key'])
  ) as k (t, columns)
 where not exists (
       select from pg_index i
        where i.indrelid = to_regclass('public.' || k.t) and i.indisunique and i.indisvalid and i.indimmediate
          and i.indexprs is null
          and (i.indpred is null or pg_get_expr(i.indpred, i.indrelid) = '(event_subject_ref IS NOT NULL)')
          and k.columns @> array(select a.attname::text from pg_attribute a
                                  where a.attrelid = i.indrelid and a.attnum = any (i.indkey::int2[]))
          and i.indnkeyatts = cardinality(k.columns))
 order by 1, 2
