select q.deferred, q.blocked_on as blocked, q.overdue, q.dead_letters_open as dead_letters from public.v_queue_health q
