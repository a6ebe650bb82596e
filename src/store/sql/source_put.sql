-- All or none, in the order given.
select gov_handoff.gov_source_put($1, d.name, d.definition, d.lo, d.hi)
  from unnest($2::text[], $3::jsonb[], $4::bigint[], $5::bigint[]) with ordinality as d (name, definition, lo, hi, n)
 order by d.n
