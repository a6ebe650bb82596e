-- The roles, and what the daemon's may read of the default sources. Run by the owner of the tables with CREATEROLE, or a
-- superuser, in the database that `gov-handoff migrate` was run on:
--
--     psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f replication/roles.sql
--
-- Five roles, each with the least it needs (tests/roles.rs holds the whole table of who may do what):
--
--   gov_handoff_owner     owns the gates; nobody logs in as it, nobody is a member of it          made by `migrate`
--   gov_handoff_worker    EXECUTE on the daemon's gates, SELECT on our own state and, by this
--                         file, on the address columns of the sources; writes no table            made by `migrate`
--   gov_handoff_operator  types, sources, dead letters, trust, retention: by gates, too; reads the
--                         same columns of the sources, to replay dead letters                     made by `migrate`
--   gov_handoff_observer  the views, for dashboards: `status`, `findings`, `certificates`         made by `migrate`
--   gov_handoff_reader    REPLICATION and nothing else: reads the slot                            made here
--
-- SELECT is granted column by column, so that contents cannot even be read by mistake. A source of your own needs the same
-- line with the `columns` of its definition. xmin and ctid, who wrote a row and where it lies, are what passes and audits
-- prove by that nothing was missed; no grant by columns includes them unless they are named.
--
-- The role that works is yours to name, and its password yours to keep:
--
--     create role gov_handoff login in role gov_handoff_worker;
--     \password gov_handoff
--     \password gov_handoff_reader
--     DATABASE_URL=postgres://gov_handoff:…@host/database \
--         GOV_HANDOFF_REPLICATION_URL=postgres://gov_handoff_reader:…@host/database gov-handoff run
--
-- or, with one role for both, `alter role gov_handoff replication`; polling needs neither. A role that streams but does not
-- own the tables cannot make the publication: run replication/publication.sql (or `gov-handoff replication setup`) once as
-- the owner. The slot it can make itself, also when it has to be made anew. Passwords stand in the URLs, in PGPASSWORD or in
-- ~/.pgpass. Operators: `grant gov_handoff_operator to …`. To let the daemon see how far standbys
-- are behind, and slow down for them: `grant pg_read_all_stats to gov_handoff`.

do $$
begin
    -- REPLICATION is not inherited by membership, so this one logs in itself; without a password nobody can, but where
    -- pg_hba.conf trusts.
    create role gov_handoff_reader login replication;
exception
    when duplicate_object or unique_violation then
        null;  -- roles belong to the cluster: here already, or made for another database a moment ago
    when insufficient_privilege then
        -- Up to 15 a superuser's to do, from 16 on of somebody who has REPLICATION. Polling does without.
        raise notice 'gov_handoff_reader was not made: %; have a superuser run `create role gov_handoff_reader login replication`',
            sqlerrm;
end
$$;

begin;

grant select (xmin, ctid, id, entity_code, collection_name, canonical_address, born_at, status, source_system, actor_ref)
    on public.birth_registry to gov_handoff_worker, gov_handoff_operator;
grant select (xmin, ctid, id, entity_type, entity_code, action, "timestamp", source_system, actor_ref)
    on public.registry_changelog to gov_handoff_worker, gov_handoff_operator;
grant select (xmin, ctid, id, pivot_code, status, created_at, source_system, actor_ref)
    on public.pivot_definitions to gov_handoff_worker, gov_handoff_operator;
grant select (xmin, ctid, id, ruleset_code, version, scope, created_at, source_system, actor_ref)
    on public.governance_ruleset to gov_handoff_worker, gov_handoff_operator;
grant select (xmin, ctid, id, event_domain, event_type, event_stream, canonical_address, occurred_at, source_system, actor_ref)
    on public.event_outbox to gov_handoff_worker, gov_handoff_operator;

commit;
