select gov_handoff.gov_finding_sustain(
    p_kind => $1, p_key => $2, p_severity => $3, p_detail => $4,
    p_every => $5::bigint * interval '1 millisecond')
