-- Removes what 0020_recipients.sql added. Subscriptions stay: the table is the live system's.
drop function gov_handoff.gov_subscription_apply(jsonb, jsonb, boolean, boolean, text);
drop function gov_handoff.gov_member_set(text, text, boolean, text);
drop function gov_handoff.gov_event_resolution(uuid);
drop function public.fn_event_recipients(uuid);
drop view public.v_event_recipient;
drop view gov_handoff.event_resolution;
drop function gov_handoff.gov_subscription_step(text, text, text, text, text, text);
drop function gov_handoff.gov_subscription_enabled();
drop view public.v_event_known_actor;
drop view public.v_event_actor_group;
drop table public.event_addressee;
drop table public.event_actor;
drop table public.event_actor_member;
