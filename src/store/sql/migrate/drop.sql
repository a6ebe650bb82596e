drop table public.{table}
