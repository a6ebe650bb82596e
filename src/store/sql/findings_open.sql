select issue_kind, severity, coalesce_key, occurrence_count
  from public.system_issues
 where source_system = 'gov-handoff' and resolved_at is null
 order by last_seen_at desc
 limit 50
