drop function public.fn_event_feed, public.fn_event_feed_head;
drop function gov_handoff.gov_feed_retire, gov_handoff.gov_feed_add, gov_handoff.gov_feed_take, gov_handoff.gov_feed_signals,
    gov_handoff.gov_feed_append, gov_handoff.gov_feed_lock, gov_handoff.gov_feed_note;
drop table public.gov_feed_state, public.gov_feed_inbox, public.event_feed, gov_handoff.feed;
