-- After the publication, never before: a slot cannot use a publication that is younger than itself.
select pg_create_logical_replication_slot('{slot}', 'pgoutput');
