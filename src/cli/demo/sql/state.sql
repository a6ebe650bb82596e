select w.alive, w.term, w.mode, w.mode_reason,
       s.slot_type, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint as retained,
       pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)::bigint as behind,
       (select count(*) from public.gov_worker_gap) as open_ranges
  from (values (1)) as one (row)
  left join public.v_governance_worker as w on w.worker_name = 'gov_handoff_intake'
  left join pg_replication_slots as s on s.slot_name = $1
