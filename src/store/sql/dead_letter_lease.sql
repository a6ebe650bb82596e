select held, term, owner, age_ms from public.gov_dead_letter_lease($1, $2::bigint * interval '1 millisecond')
