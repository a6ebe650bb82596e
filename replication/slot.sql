-- The slot, after the publication and never before it: a slot decodes with the catalogue of its own time and cannot use a
-- publication that is younger than itself. Needs a role with REPLICATION, in the database of the sources.
--
-- Slots share one namespace in the whole cluster, so the default name carries the database's. From here on the server keeps
-- its log until the daemon acknowledges it: do not create the slot long before the daemon runs.

select slot_name, lsn
  from pg_create_logical_replication_slot(
           left('gov_handoff_' || regexp_replace(lower(current_database()), '[^a-z0-9]', '_', 'g'), 63), 'pgoutput');
