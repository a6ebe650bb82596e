drop function gov_handoff.gov_frontier_advance, gov_handoff.gov_stream_confirm, gov_handoff.gov_stream_bind, gov_handoff.gov_gap_cool,
    gov_handoff.gov_gap_replace, gov_handoff.gov_source_remove, gov_handoff.gov_source_put, gov_handoff.gov_source_renew, gov_handoff.gov_source_mapping, gov_handoff.gov_source_open,
    gov_handoff.gov_source_bind, gov_handoff.gov_handoff_drain, gov_handoff.gov_handoff_drain_some, gov_handoff.gov_handoff_drain_refused,
    gov_handoff.gov_type_set_active, gov_handoff.gov_batches_alone;
