select exists (select from public.v_event_known_actor a where a.actor_ref = $1) as known
