-- By the view, because an observer may not read the outbox.
select exists (select from public.v_event_unified e where e.event_id = $1) as there
