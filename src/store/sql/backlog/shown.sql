select b.source_name, null::uuid as boundary, b.policy, b.row_count, b.taken_at::text as taken_at, b.snapshot, b.lsn::text as lsn, b.digest,
       b.decided_by, b.decided_at::text as decided_at, b.phase, b.rows_read, b.candidates
  from public.v_gov_backlog b
 order by b.source_name
