-- The frontier of a source, if it was found on this server.
select f.frontier::text::bigint as frontier
  from public.gov_worker_frontier f
 where f.worker_name = $1 and f.source_name = $2
   and f.system_identifier = (select c.system_identifier::text from pg_control_system() c)
