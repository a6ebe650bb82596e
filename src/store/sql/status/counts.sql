select waiting, retrying, more, dead_letters, dirty_groups, open_findings,
       (select to_char(l.first_failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') from public.v_gov_letter l
         where l.worker_name <> 'job_queue' order by l.first_failed_at, l.id limit 1) as oldest_dead_letter_at
  from public.v_governance_summary
