select kind, severity, coalesce_key, detail, occurrence_count, first_seen_at::text as first_seen_at,
       last_seen_at::text as last_seen_at, resolved_at::text as resolved_at, resolution
  from public.v_governance_finding
 where ($1::text is null or kind = $1) and ($2 or resolved_at is null)
 order by resolved_at is not null, array_position(array['critical', 'high', 'warning', 'info'], severity), last_seen_at desc
 limit $3
