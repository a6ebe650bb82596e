select pg_logical_emit_message(false, 'gov-handoff', '')
