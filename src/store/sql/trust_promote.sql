select moved, staged from public.gov_trust_promote($1, $2, $3, $4)
