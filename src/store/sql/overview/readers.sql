select actor_ref, event_domain, event_stream, through, above, above_is_more,
       to_char(updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as updated_at
  from public.v_gov_reader
 order by above desc, actor_ref, event_domain, event_stream
 limit 12
