select c.event_domain, c.event_stream, c.unread, c.more from public.fn_event_unread_count($1) c
