select public.gov_source_put($1, $2, $3, $4, $5)
