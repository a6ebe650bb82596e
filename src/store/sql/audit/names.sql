select key from public.gov_audit_name
 where source_name = $1 and depth = $2 and verdict = $3
 order by n
 limit $4
