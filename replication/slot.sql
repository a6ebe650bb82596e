-- The slot, after the publication and never before it: a slot decodes with the catalogue of its own time and cannot use a
-- publication that is younger than itself. Needs a role with REPLICATION, in the database of the sources.
--
-- Slots share one namespace in the whole cluster, so the default name carries the database's. From here on the server keeps
-- its log until the daemon acknowledges it: do not create the slot long before the daemon runs.
-- From PostgreSQL 17 on it is one that a standby can keep (sync_replication_slots there), so that a failover continues it.

do $slot$
begin
    execute format('select pg_create_logical_replication_slot(%L, ''pgoutput''%s)',
                   left('gov_handoff_' || regexp_replace(lower(current_database()), '[^a-z0-9]', '_', 'g'), 63),
                   case when current_setting('server_version_num')::int >= 170000 then ', failover => true' else '' end);
end
$slot$;
