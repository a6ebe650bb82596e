select u.key
  from unnest($2::text[]) as u (key)
 where exists (select from public.iu_route_dead_letter d where d.worker_name = $1 and d.idempotency_key = u.key)
