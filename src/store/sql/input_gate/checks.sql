select c.code, c.description, c.enabled, c.changed_by, c.changed_at::text as changed_at
  from public.gov_input_check c
 order by c.code
