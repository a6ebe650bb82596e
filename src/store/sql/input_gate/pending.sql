select c.candidate_key, c.source_name, c.source_key, c.key_conflict
  from public.gov_candidate_state c
 where c.input_quality_state = 'pending' and c.source_name = $1 and c.candidate_key > $2
 order by c.candidate_key
 limit $3
