-- The registered sources, with the catalogue data of their columns.
select c.source_name, c.metadata, {columns_of}, v.version
  from public.gov_worker_cursor c
  join public.gov_source_version v on v.worker_name = c.worker_name and v.source_name = c.source_name
 where c.worker_name = $1
 order by c.source_name
