-- The selected dead letters, oldest first. $5: include resolved letters.
select d.id, d.worker_name, d.route_code as source, d.idempotency_key,
       coalesce(d.event_snapshot ->> 'source_key', substr(d.idempotency_key, length(d.route_code) + 2)) as source_key,
       coalesce(d.event_snapshot ->> 'canonical_address', '') as canonical_address,
       coalesce(d.event_snapshot -> 'kinds', '[]') as kinds,
       d.failure_code, d.failure_detail, d.attempts, d.first_failed_at::text, d.last_failed_at::text, d.resolved_at::text,
       d.resolution, coalesce(to_jsonb(d) ->> 'resolved_by', d.event_snapshot #>> '{resolution,by}') as resolved_by,
       d.event_snapshot #>> '{resolution,reason}' as reason
  from public.iu_route_dead_letter d
 where (d.event_domain = 'governance' or d.worker_name = 'job_queue')
   and ($1::text is null or d.route_code = $1)
   and ($2::text is null or d.failure_code = $2)
   and ($3::text is null or d.last_failed_at >= $3::text::timestamptz)
   and ($4::uuid[] is null or d.id = any ($4))
   and ($5::boolean or d.resolved_at is null)
 order by d.first_failed_at, d.id
