select gov_handoff.gov_frontier_advance(
    p_worker => $1, p_owner => $2, p_term => $3, p_source => $4, p_frontier => $5::text::xid8, p_system => $6,
    p_lsn => $7, p_relation => $8, p_filenode => $9, p_version => $10)
