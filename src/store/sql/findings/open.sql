select kind, severity, coalesce_key, occurrence_count, to_char(first_seen_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since
  from public.v_governance_finding
 where resolved_at is null
 order by last_seen_at desc
 limit 50
