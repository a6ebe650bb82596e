select moved, refused from public.gov_handoff_drain($1, $2, $3, $4, $5)
