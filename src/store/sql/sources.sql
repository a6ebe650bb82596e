select source_name, metadata
  from public.gov_worker_cursor
 where worker_name = $1
 order by source_name
