-- The next deadline of a job, and the jobs that wait for their time.
select extract(epoch from q.next_deadline_at - clock_timestamp())::float8 as next_deadline, q.deferred,
       extract(epoch from clock_timestamp() - q.next_due_at)::float8 as late
  from public.v_queue_health q
