select q.deferred, q.overdue, q.dead_letters_open from public.v_queue_health q
