-- The sources whose backlog is seeded, each with the place of the sweep.
select b.source_name, b.boundary, b.row_count, s.place
  from public.gov_source_boundary b
  left join lateral (select c.last_run_summary -> 'sweep' as place from public.gov_worker_cursor c
                      where c.worker_name = $1 and c.source_name = b.source_name) s on true
 where b.policy = 'seed' and b.row_count > 0
 order by b.source_name
