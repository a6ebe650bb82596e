-- What the daemon's role may read of the default sources, and how to make that role. Run by the owner of the tables or a
-- superuser, in the database that `gov-handoff migrate` was run on:
--
--     psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f replication/roles.sql
--
-- `migrate` made the group gov_handoff_worker: EXECUTE on the gates, SELECT on our own state, no write on any table. This
-- file adds SELECT on the address columns of the sources, column by column, so that contents cannot even be read by mistake;
-- to the operators' group too, whose replays of dead letters read rows again.
-- A source of your own needs the same line with the `columns` of its definition.
--
-- The role that logs in is yours to name, and its password yours to keep:
--
--     create role gov_handoff login in role gov_handoff_worker;
--     \password gov_handoff
--     alter role gov_handoff replication;   -- to stream; polling needs no more than the above
--
-- A role that streams but does not own the tables cannot make the publication: run replication/publication.sql and
-- replication/slot.sql (or `gov-handoff replication setup`) once as the owner, and the daemon with GOV_HANDOFF_CREATE=false.
-- Operators who activate types and load sources: `grant gov_handoff_operator to …`; for dashboards: gov_handoff_observer.

begin;

grant select (id, entity_code, collection_name, canonical_address, born_at, status, source_system, actor_ref)
    on public.birth_registry to gov_handoff_worker, gov_handoff_operator;
grant select (id, entity_type, entity_code, action, "timestamp", source_system, actor_ref)
    on public.registry_changelog to gov_handoff_worker, gov_handoff_operator;
grant select (id, pivot_code, status, created_at, source_system, actor_ref)
    on public.pivot_definitions to gov_handoff_worker, gov_handoff_operator;
grant select (id, ruleset_code, version, scope, created_at, source_system, actor_ref)
    on public.governance_ruleset to gov_handoff_worker, gov_handoff_operator;
grant select (id, event_domain, event_type, event_stream, canonical_address, occurred_at, source_system, actor_ref)
    on public.event_outbox to gov_handoff_worker, gov_handoff_operator;

commit;
