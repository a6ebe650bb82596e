-- The dead letter of a row. The letter belongs to the worker that reads the source, or read it once.
select d.id, d.failure_code, d.attempts, d.first_failed_at, d.last_failed_at, d.resolved_at, d.resolution,
       coalesce(to_jsonb(d) ->> 'resolved_by', d.event_snapshot #>> '{resolution,by}') as resolved_by
  from (select $1::text as worker_name
         union
        select c.worker_name from public.gov_worker_cursor c where c.source_name = $2) w
  join public.iu_route_dead_letter d on d.worker_name = w.worker_name and d.idempotency_key = $3
 where d.event_domain = 'governance'
 order by d.resolved_at is null desc, d.last_failed_at desc
 limit 1
