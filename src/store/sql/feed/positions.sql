select count(*) as positions from public.event_feed
