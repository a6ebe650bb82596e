select public.gov_handoff_drain($1, $2)
