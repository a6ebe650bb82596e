-- All or none, in the order given.
select gov_handoff.gov_source_put(
    p_worker => $1, p_source => d.name, p_definition => d.definition, p_lo => d.lo, p_hi => d.hi,
    p_boundary => d.boundary)
  from unnest($2::text[], $3::jsonb[], $4::bigint[], $5::bigint[], $6::jsonb[]) with ordinality
       as d (name, definition, lo, hi, boundary, n)
 order by d.n
