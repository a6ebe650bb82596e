-- The catalogue data of the columns of a definition that need not be registered.
select {columns_of}
