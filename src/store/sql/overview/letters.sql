select id::text as id, worker_name, source_name, idempotency_key, event_type, failure_code, attempts,
       to_char(first_failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since
  from public.v_gov_letter
 order by first_failed_at, id
 limit 8
