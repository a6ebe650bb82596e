select count(*) from public.gov_worker_gap where worker_name = $1 and source_name = $2 and hot
