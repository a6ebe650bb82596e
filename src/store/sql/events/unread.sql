select u.pos, u.event_id, u.event_domain, u.event_type, u.event_stream, u.event_severity, u.canonical_address, u.actor_ref,
       to_char(u.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as occurred_at
  from public.fn_event_unread(p_actor => $1, p_domain => $2, p_stream => $3, p_limit => $4, p_include_self => $5,
                              p_include_resolved => $6) u
