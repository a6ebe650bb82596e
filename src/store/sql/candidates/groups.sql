select g.group_key, g.members, g.accepted, g.rejected, g.retired, g.changes, g.verdict, g.severity, g.scanned_version, g.dirty,
       g.dirty_reason, g.scanned_at::text as scanned_at
  from public.v_gov_group g
 where g.group_key > $1
 order by g.group_key
 limit $2
