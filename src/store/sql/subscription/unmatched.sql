-- Of these subscriptions ($1), those that cannot match anything: their type is not registered, or it has another stream.
select w.recipient_ref, w.event_domain, w.event_type, w.event_stream, t.event_stream as registered_stream
  from jsonb_to_recordset($1) as w (recipient_ref text, event_domain text, event_type text, event_stream text)
  left join public.event_type_registry t on t.event_domain = coalesce(w.event_domain, t.event_domain) and t.event_type = w.event_type
 where w.event_type is not null and (t.event_type is null or t.event_stream <> w.event_stream)
 order by 1, 2, 3
