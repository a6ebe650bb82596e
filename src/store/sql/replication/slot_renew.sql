-- After the publication the slot is created again: it was lost, or it is older than the publication and cannot use it.
-- Stop the daemon first, because a slot in use cannot be dropped. The daemon finds the rows of the time in between in
-- the tables.
select pg_drop_replication_slot('{slot}');
{create}
