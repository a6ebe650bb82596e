select public.gov_source_remove($1, $2)
