select count(*) from {table} t
