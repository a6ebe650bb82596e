select public.gov_lease_resign($1, $2, $3)
