create unique index on {table} {columns};
