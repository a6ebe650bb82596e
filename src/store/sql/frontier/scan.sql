-- One scan of every visible row: the number of rows, and the place in the file of the first row written since the
-- frontier, whatever its key or timestamp. New rows are mostly at the end, so reading from that place on costs little.
-- After a rollback and a VACUUM new rows may be anywhere; then most of the file is read a second time.
select count(*) as there, (min(t.ctid) filter (where {frontier}))::text as first
  from {table} t
