-- The commit waits until it is on disk. Then everything before it is on disk as well and can be sent.
select pg_logical_emit_message(true, 'gov-handoff', '')
