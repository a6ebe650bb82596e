-- As the catalogue is now, and not as the snapshot has it: we hold a lock, so that now is what we read.
select c.r::oid, pg_relation_filenode(c.r) from (select $1::text::regclass as r) c
