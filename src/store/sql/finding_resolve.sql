select public.gov_finding_resolve($1, $2)
