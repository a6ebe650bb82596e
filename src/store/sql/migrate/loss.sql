select count(*) from public.{table} where {filter}
