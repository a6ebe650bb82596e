-- The present state of the catalogue, not the state in the snapshot. We hold a lock, so the present relation is the one
-- we read.
select c.r::oid, pg_relation_filenode(c.r) from (select $1::text::regclass as r) c
