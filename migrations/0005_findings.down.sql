drop function gov_handoff.gov_audit_note, gov_handoff.gov_audit_write, gov_handoff.gov_finding_sustain, gov_handoff.gov_finding_resolve,
    gov_handoff.gov_finding_raise, gov_handoff.gov_finding_emit, gov_handoff.gov_severity_rank;
