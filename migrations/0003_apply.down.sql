-- Functions are dropped by name alone, here and below, so that this step still works when a gate changes its arguments.
drop function gov_handoff.gov_handoff_probe, gov_handoff.gov_candidate_seed, gov_handoff.gov_handoff_mark_new, gov_handoff.gov_marks_put, gov_handoff.gov_groups_touch, gov_handoff.gov_handoff_apply_one, gov_handoff.gov_handoff_apply,
    gov_handoff.gov_handoff_emit, gov_handoff.gov_handoff_capture, gov_handoff.gov_handoff_mark, gov_handoff.gov_handoff_advance,
    gov_handoff.gov_definition_fence, gov_handoff.gov_watermark_ahead, gov_handoff.gov_handoff_identity;
