select source_name, started_at, ended_at, rows_checked, missing, doubled, orphans, unfinished, rows_so_far,
       case when $2::bigint > 0 then counts_from + $2::bigint * interval '1 millisecond' end as due_at
  from public.v_gov_full_audit
 where intake = $1
 order by source_name
