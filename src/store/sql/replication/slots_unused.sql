-- Slots of ours that no session reads, except the configured one. We recognise them by the position that we record for
-- them, or by the names that we give. A running selftest drops its own slot; one that was killed has not ticked since.
select s.slot_name::text as slot_name,
       case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end as retained
  from pg_catalog.pg_replication_slots s
 where s.slot_name <> $1 and not s.active and not s.temporary and s.plugin = 'pgoutput' and s.database = current_database()
   and not (starts_with(s.slot_name::text, 'gov_handoff_selftest')
            and exists (select from public.v_governance_worker w
                         where w.worker_name = 'gov_handoff_selftest' and w.last_tick_at > clock_timestamp() - interval '2 minutes'))
   and (starts_with(s.slot_name::text, 'gov_handoff_')
        or exists (select from public.v_governance_stream p where p.slot_name = s.slot_name))
 order by s.slot_name
