select source_name, certificate
  from public.v_governance_certificate
 where worker_name in ($1, 'gov_backfill_sweep') or source_name = 'event_feed'
 order by source_name
