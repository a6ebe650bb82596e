-- Its commit is waited for, so that everything before it is on disk as well, and can be sent.
select pg_logical_emit_message(true, 'gov-handoff', '')
