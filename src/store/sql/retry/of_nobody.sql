select distinct r.source_name
  from public.v_governance_retry r
 where r.source_name is not null
   and not exists (select from public.gov_worker_cursor c where c.source_name = r.source_name and c.metadata ? 'id')
