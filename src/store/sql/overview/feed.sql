select low, last, waiting from public.v_gov_feed
