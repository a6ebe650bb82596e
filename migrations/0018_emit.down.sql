drop function public.fn_event_emit, public.fn_event_emit_many;
drop function gov_handoff.gov_event_emit;
drop function gov_handoff.gov_type_set_lane, gov_handoff.gov_event_release_some, gov_handoff.gov_event_release,
    gov_handoff.gov_event_insert, gov_handoff.gov_emit_finding, gov_handoff.gov_event_cycles, gov_handoff.gov_outbox_is_traced,
    gov_handoff.gov_event_identity_new, gov_handoff.gov_sendable, gov_handoff.gov_sent, gov_handoff.gov_time_of,
    gov_handoff.gov_address_violation, gov_handoff.gov_payload_violation;
drop table public.event_type_lane;
revoke usage on schema public from gov_handoff_producer;
