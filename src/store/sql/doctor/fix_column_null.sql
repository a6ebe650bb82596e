alter table {table} alter column {column} drop not null;
