select kind, severity, count(*)
  from public.v_governance_finding
 where resolved_at is null
 group by kind, severity
 order by kind, severity
