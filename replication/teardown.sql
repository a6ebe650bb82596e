-- Takes back what publication.sql, slot.sql and roles.sql made. Stop the daemon first: a slot in use cannot be dropped.
-- Handoffs and the daemon's state stay; `gov-handoff migrate revert` is for those. Polling goes on without all of this, as
-- long as the grants of roles.sql stay, so leave the revokes out if that is what you want. Roles belong to the cluster and stay
-- too; once no database needs it, `drop role gov_handoff_reader`.

select pg_drop_replication_slot(slot_name)
  from pg_replication_slots
 where database = current_database()
   and slot_name = left('gov_handoff_' || regexp_replace(lower(current_database()), '[^a-z0-9]', '_', 'g'), 63);

drop publication if exists gov_handoff;

begin;

revoke select (xmin, ctid, id, entity_code, collection_name, canonical_address, born_at, status, source_system, actor_ref)
    on public.birth_registry from gov_handoff_worker, gov_handoff_operator;
revoke select (xmin, ctid, id, entity_type, entity_code, action, "timestamp", source_system, actor_ref)
    on public.registry_changelog from gov_handoff_worker, gov_handoff_operator;
revoke select (xmin, ctid, id, pivot_code, status, created_at, source_system, actor_ref)
    on public.pivot_definitions from gov_handoff_worker, gov_handoff_operator;
revoke select (xmin, ctid, id, ruleset_code, version, scope, created_at, source_system, actor_ref)
    on public.governance_ruleset from gov_handoff_worker, gov_handoff_operator;
revoke select (xmin, ctid, id, event_domain, event_type, event_stream, canonical_address, occurred_at, source_system, actor_ref)
    on public.event_outbox from gov_handoff_worker, gov_handoff_operator;

commit;
