select d.group_key, g.members, g.accepted, g.rejected, g.retired, g.changes, g.verdict, g.severity, g.scanned_version,
       true as dirty, d.dirty_reason, g.scanned_at::text as scanned_at
  from public.v_gov_dirty d
  join public.v_gov_group g on g.group_key = d.group_key
 where d.group_key > $1
 order by d.group_key
 limit $2
