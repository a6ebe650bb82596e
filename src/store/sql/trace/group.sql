-- A group, and what is known of one object.
select g.group_key, g.verdict, g.dirty, g.scanned_at,
       c.candidate_key, c.input_quality_state, c.input_reason, c.candidate_verdict, c.scanned_at as object_scanned_at
  from (select $1::text as group_key, $2::text as address) w
  left join public.v_gov_group g on g.group_key = w.group_key
  left join public.v_gov_candidate c on c.candidate_key = w.address
 where g.group_key is not null or c.candidate_key is not null
