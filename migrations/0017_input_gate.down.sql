drop trigger gov_input_definition_changed on public.gov_source_version;
drop function gov_handoff.gov_input_put, gov_handoff.gov_input_check_set, gov_handoff.gov_input_definition_changed,
    gov_handoff.gov_input_recheck_note;
drop index public.gov_candidate_state_rejected;
drop table public.gov_input_recheck, public.gov_input_check;
