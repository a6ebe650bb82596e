select examined, marked,
       (extract(epoch from due_at - clock_timestamp()) * 1000)::bigint as due_in
  from gov_handoff.gov_candidates_revalidate(
    p_worker => $1, p_owner => $2, p_term => $3, p_every => $4::bigint * interval '1 millisecond', p_limit => $5)
