select pg_terminate_backend(a.pid, 5000) from pg_stat_activity a where a.pid = {pid} and a.xact_start < now() - interval {limit};
