select source_name, last_run_summary -> 'certificate' as certificate
  from public.gov_worker_cursor
 where worker_name = $1 and last_run_summary ? 'certificate'
 order by source_name
