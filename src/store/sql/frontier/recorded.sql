select frontier::text, system_identifier, relation, filenode
  from public.gov_worker_frontier
 where worker_name = $1 and source_name = $2
