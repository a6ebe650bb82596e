-- The publication of the default sources, as `gov-handoff replication sql` prints it for whatever sources are registered.
-- Run by the owner of the tables (or a superuser), before the slot is made: see slot.sql.
--
-- Column lists keep contents off the wire, row filters our own rows; only inserts are published. After a change of the
-- sources print it again: a publication that carries more or less than the sources is refused by the daemon.

begin;
create publication "gov_handoff" for table
    "public"."birth_registry" ("id", "entity_code", "collection_name", "canonical_address", "born_at", "status", "source_system", "actor_ref"),
    "public"."event_outbox" ("id", "event_domain", "event_type", "event_stream", "canonical_address", "occurred_at", "source_system", "actor_ref") where (not ((coalesce("event_domain" = E'governance', false) or coalesce("event_domain" = E'system', false) or coalesce("event_domain" = E'health', false))) and not (not (coalesce("event_stream" = E'birth', false) or coalesce("event_stream" = E'update', false)))),
    "public"."governance_ruleset" ("id", "ruleset_code", "version", "scope", "created_at", "source_system", "actor_ref"),
    "public"."pivot_definitions" ("id", "pivot_code", "status", "created_at", "source_system", "actor_ref"),
    "public"."registry_changelog" ("id", "entity_type", "entity_code", "action", "timestamp", "source_system", "actor_ref") where (not (coalesce("source_system" = E'gov-handoff', false)))
    with (publish = 'insert');
-- What the row filters were made from, and how the server shows them: whoever changes them later is noticed.
do $note$
begin
    execute format('comment on publication %I is %L', E'gov_handoff', (
        select concat_ws(' ', 'gov-handoff: row filters e593aadb0c9fe0355fd63f07b4b6300ebe50cf2305d847774c5cdd5957a72038',
                         encode(sha256(convert_to(coalesce(string_agg(concat_ws(' ', t.schemaname, t.tablename, t.rowfilter), chr(10)
                             order by t.schemaname, t.tablename), ''), 'UTF8')), 'hex'))
          from pg_publication_tables t
         where t.pubname = E'gov_handoff' and t.rowfilter is not null));
end
$note$;
commit;
