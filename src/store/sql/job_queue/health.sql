select to_jsonb(q) from public.v_queue_health q
