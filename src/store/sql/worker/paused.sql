select exists (select from public.gov_worker_control where worker_name = $1 and paused)
