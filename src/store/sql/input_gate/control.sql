select array(select c.code from public.gov_input_check c where c.enabled) as checks,
       array(select distinct r.source_name from public.gov_input_recheck r where r.done_at is null order by 1) as walks
