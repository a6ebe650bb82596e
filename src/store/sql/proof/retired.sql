-- The ids of $1 that were retired one by one. A retired range says nothing about one signal: it covers keys of which
-- every signal was retired.
select r.id from public.gov_retired_signal r where r.id = any ($1::uuid[])
