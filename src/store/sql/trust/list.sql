-- The trusted producers of each source, and the number of captures for each producer that is not trusted.
select c.source_name, coalesce(c.metadata #>> '{trust,by}', 'source_system') as by, c.metadata #> '{trust,producers}' as producers,
       coalesce((select jsonb_object_agg(w.producer, w.n)
                   from (select p.capture_payload ->> coalesce(c.metadata #>> '{trust,by}', 'source_system') as producer, count(*) as n
                           from public.event_pending p
                          where p.event_domain = 'governance' and p.last_error = 'untrusted_source'
                            and p.processed_at is null and p.capture_payload ->> 'source' = c.source_name
                          group by 1) w), '{}') as waiting
  from public.gov_worker_cursor c
 where c.worker_name = $1 and c.metadata ? 'id'
 order by c.source_name
