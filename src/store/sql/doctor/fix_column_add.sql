alter table {table} add column {column} {type};
