-- The newest jobs first: the id of a job begins with the time it was enqueued. A parameter that is null does not restrict.
--
-- job_queue has no index on what changes, so a rare state, kind or domain would be searched for in the whole table. At most $6
-- jobs are looked at: the newest ones, and, for a state that has not ended, jobs from each of the narrow tables.
select q.id, q.idempotency_key, q.job_kind, q.event_domain, q.executor, q.status, q.priority::int as priority, q.attempts,
       q.max_attempts, q.lease_owner, q.next_run_at::text, q.deadline_at::text, q.last_error, q.created_at::text
  from (select n.id from (select j.id from public.job_queue j order by j.id desc limit $6) n
         union
        select w.id
          from (select r.job_id as id from public.job_ready r where $1 = 'queued' limit $6) w
         union
        select w.id
          from (select d.job_id as id from public.job_deferred d where $1 in ('queued', 'retry_waiting') limit $6) w
         union
        select w.id
          from (select p.job_id as id from public.job_dependency p where $1 = 'queued' limit $6) w
         union
        select w.id
          from (select unnest(c.job_ids) as id from public.job_claim c where $1 in ('leased', 'in_progress') limit $6) w
         union
        select w.id
          from (select l.event_ref as id from public.iu_route_dead_letter l
                 where $1 = 'dead_letter' and l.worker_name = 'job_queue' and l.resolved_at is null limit $6) w) c
  -- The limit keeps this a look by id: joined freely, the planner may read the whole table.
 cross join lateral (select j.* from public.job_queue j where j.id = c.id limit 1) q
 where ($1::text is null or q.status = $1)
   and ($2::text is null or q.job_kind = $2)
   and ($3::text is null or q.executor = $3)
   and ($4::text is null or q.event_domain = $4)
 order by q.id desc limit $5
