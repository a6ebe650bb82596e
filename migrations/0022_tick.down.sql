-- Removes what 0022_tick.sql added. Pieces of the delayed lane stay in event_pending.
drop view public.v_event_unified, public.v_event_delayed, public.v_health_open_issues, public.v_event_alerts_recent,
    public.v_event_universal_board, public.v_subscription_broadcast_used;
drop function public.fn_event_consume_once, public.fn_event_worker_tick;
drop function gov_handoff.gov_tick_page, gov_handoff.gov_tick_gate, gov_handoff.gov_tick_jobs, gov_handoff.gov_escalate, gov_handoff.gov_tick_escalation,
    gov_handoff.gov_tick_routing, gov_handoff.gov_unsubscribed, gov_handoff.gov_delayed_release, gov_handoff.gov_delayed_roll_up,
    gov_handoff.gov_tick_delayed, gov_handoff.gov_delayed_take, gov_handoff.gov_delayed_due, gov_handoff.gov_tick_gather, gov_handoff.gov_rollup_threshold, gov_handoff.gov_debounce,
    gov_handoff.gov_config_duration, gov_handoff.gov_delayed_note;
drop index public.event_feed_alert;
drop table public.event_consumed, public.event_escalation, public.event_routing_tally, public.event_routing, public.event_delayed_group,
    public.event_delayed;
