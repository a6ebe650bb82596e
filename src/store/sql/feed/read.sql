select pos, event_id::text as event_id, event_domain, event_type, event_stream, event_severity, event_subject_table,
       event_subject_ref::text as event_subject_ref, actor_ref, canonical_address, occurred_at::text as occurred_at
  from public.fn_event_feed(p_after => $1, p_limit => $2, p_domain => $3, p_type => $4, p_stream => $5)
