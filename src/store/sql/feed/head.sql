select low, last from public.fn_event_feed_head()
