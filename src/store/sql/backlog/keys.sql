-- The key of every visible row.
select {key} from {table} t
