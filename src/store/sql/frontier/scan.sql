-- One look at every visible row: how many there are, and from which place of the file on some were written since the frontier,
-- whatever their keys or timestamps. New rows mostly lie at the end, so that reading them from there on costs little; after a
-- rollback and a VACUUM they lie anywhere, and then most of the file is read once more.
select count(*) as there, (min(t.ctid) filter (where {frontier}))::text as first
  from {table} t
