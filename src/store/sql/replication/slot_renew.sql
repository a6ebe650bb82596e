-- After the publication the slot is made anew: it was lost, or is older than the publication and cannot use it. Stop the daemon
-- first, a slot in use cannot be dropped; rows of the time in between are found in the tables.
select pg_drop_replication_slot('{slot}');
{create}
