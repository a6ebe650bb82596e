-- The publication of the default sources, as `gov-handoff replication sql` prints it for whatever sources are registered.
-- Run by the owner of the tables (or a superuser), before the slot is made: see slot.sql.
--
-- Column lists keep contents off the wire, row filters our own rows; only inserts are published. After a change of the
-- sources print it again: a publication that carries more or less than the sources is refused by the daemon.

begin;
create publication "gov_handoff" for table
    "public"."birth_registry" ("id", "entity_code", "collection_name", "canonical_address", "born_at", "status", "source_system", "actor_ref"),
    "public"."event_outbox" ("id", "event_domain", "event_type", "event_stream", "canonical_address", "occurred_at", "source_system", "actor_ref") where (not ((coalesce("event_domain" collate "C" = E'governance', false) or coalesce("event_domain" collate "C" = E'system', false) or coalesce("event_domain" collate "C" = E'health', false))) and not (not (coalesce("event_stream" collate "C" = E'birth', false) or coalesce("event_stream" collate "C" = E'update', false)))),
    "public"."governance_ruleset" ("id", "ruleset_code", "version", "scope", "created_at", "source_system", "actor_ref"),
    "public"."pivot_definitions" ("id", "pivot_code", "status", "created_at", "source_system", "actor_ref"),
    "public"."registry_changelog" ("id", "entity_type", "entity_code", "action", "timestamp", "source_system", "actor_ref") where (not (coalesce("source_system" collate "C" = E'gov-handoff', false)))
    with (publish = 'insert');
-- What the row filters were made from, and how the server shows them: whoever changes them later is noticed.
do $note$
begin
    execute format('comment on publication %I is %L', E'gov_handoff', (
        select concat_ws(' ', 'gov-handoff: row filters 723708805678b97a26e6e5944478c622f391d9b3ec2c62f5e5bd1651673be0b5',
                         encode(sha256(convert_to(coalesce(string_agg(concat_ws(' ', t.schemaname, t.tablename, t.rowfilter), chr(10)
                             order by t.schemaname, t.tablename), ''), 'UTF8')), 'hex'))
          from pg_publication_tables t
         where t.pubname = E'gov_handoff' and t.rowfilter is not null));
end
$note$;
commit;
