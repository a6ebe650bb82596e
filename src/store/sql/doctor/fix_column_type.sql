alter table {table} alter column {column} type {type} using {column}::{type};
