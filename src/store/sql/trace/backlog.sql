-- The boundary of a source, if this row lies before it.
select b.policy, b.taken_at
  from public.gov_source_boundary b
 where b.source_name = $1 and b.policy <> 'hand_off' and b.row_count > 0
   and (coalesce((select r.hi >= $2 from public.gov_backlog_range r
                   where r.boundary = b.boundary and r.lo <= $2 order by r.lo desc limit 1), false)
        or exists (select from public.gov_backlog_key k where k.boundary = b.boundary and k.subject = $3))
