select public.gov_trust_promote($1)
