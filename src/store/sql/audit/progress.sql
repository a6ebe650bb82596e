select last_run_summary #>> '{audit,after}' as after, last_run_summary -> 'audit' as progress
  from public.gov_worker_cursor
 where worker_name = $1 and source_name = $2 and last_run_summary ? 'audit'
