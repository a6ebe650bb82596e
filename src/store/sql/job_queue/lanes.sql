-- The lanes with jobs first; as many as fit a look.
select to_jsonb(l) - 'lane_id' from public.v_job_lane l order by l.ready desc, l.lane_id limit 200
