drop view public.v_gov_letter, public.v_gov_reader, public.v_gov_feed, public.v_gov_mode_history;
