select to_char(m.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at, m.mode, m.reason
  from public.v_gov_mode_history m
 where m.worker_name = $1
 order by m.at desc
 limit 12
