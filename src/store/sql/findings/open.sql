select kind, severity, coalesce_key, occurrence_count
  from public.v_governance_finding
 where resolved_at is null
 order by last_seen_at desc
 limit 50
