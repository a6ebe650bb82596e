-- Removes what 0021_read_state.sql added. The roles belong to the cluster and stay; they lose what this step gave them.
drop function public.fn_event_board, public.fn_event_ack, public.fn_event_mark_all_read, public.fn_event_mark_unread,
    public.fn_event_mark_read, public.fn_event_unread_count, public.fn_event_unread;
drop function gov_handoff.gov_event_deliver, gov_handoff.gov_read_compact, gov_handoff.gov_actor_note, gov_handoff.gov_actor_bind, gov_handoff.gov_unread,
    gov_handoff.gov_unread_own, gov_handoff.gov_unread_candidates, gov_handoff.gov_events_resolved, gov_handoff.gov_received,
    gov_handoff.gov_receivable, gov_handoff.gov_feed_types, gov_handoff.gov_feed_streams;
drop table public.event_delivery, public.event_read_exception, public.event_read_mark;
revoke execute on function public.fn_event_recipients(uuid), public.fn_event_feed_head(), public.fn_event_feed(bigint, int, text, text, text)
    from gov_handoff_producer, gov_handoff_executor;
revoke usage on schema public from gov_handoff_executor;
