-- The next deadline of a job, and the jobs that wait for their time.
select extract(epoch from (select min(d.deadline_at) from public.job_deadline d) - clock_timestamp())::float8 as next_deadline,
       (select count(*) from (select from public.job_deferred limit 10000) f) as deferred,
       extract(epoch from clock_timestamp() - (select min(f.due) from public.job_deferred f))::float8 as late
