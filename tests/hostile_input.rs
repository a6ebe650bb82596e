//! Hostile input: each row is handed off, or set aside with a reason. Never a crash, never a stall, through either path.

use crate::support::sources::{register, rule, source};
use crate::support::{
    Daemon, Database, TemporaryFile, active, active_of, blocking, cli, cluster, connect, done, until,
};

/// Rows of megabytes are slow to refuse; once is as good as five times.
const QUICK: &str =
    "update dot_config set value = case key when 'event.retry.max_attempts' then '1' else '10' end
                      where key like 'event.retry.%'";
const STAGED: &str = "select count(*) from event_pending where event_type_hint = 'governance.handoff.retry'";

/// A registry with tables and sources of its own, and a daemon that captures in this mode.
async fn capturing(mode: &str, tables: &str, sources: &str, reconcile: &str) -> (Database, Daemon) {
    let registry = active().await;
    registry.sql(tables).await;
    register(&registry.url, sources).await;
    let daemon = registry.capturing(mode, reconcile).await;
    (registry, daemon)
}

/// Every row of `table` is signalled so many times each, or a dead letter with its reason; and then a last, ordinary row
/// shows that nothing stalls.
async fn settled(registry: &Database, source: &str, rows: &str) {
    let missing = format!(
        "select count(*) from ({rows}) r (key)
          where not exists (select from verify.handoffs h where h.safe_payload ->> 'source' = '{source}' and h.safe_payload ->> 'source_key' = r.key)
            and not exists (select from iu_route_dead_letter d where d.route_code = '{source}' and d.event_snapshot ->> 'source_key' = r.key)"
    );
    until("every row is handed off or set aside", async || {
        registry.number(&missing).await == 0 && registry.number(STAGED).await == 0
    })
    .await;
    registry.births("ordinary", 1).await;
    let last = "select count(*) from verify.handoffs where canonical_address = 'c1:ordinary1'";
    let before = registry.number(last).await;
    registry.births("ordinary", 1).await;
    until("nothing stalls", async || registry.number(last).await > before).await;
}

/// `key reason` of every letter of a source.
async fn letters(registry: &Database, source: &str) -> Vec<String> {
    let rows = format!(
        "select left(event_snapshot ->> 'source_key', 40) || ' ' || failure_code from iu_route_dead_letter
          where route_code = '{source}' order by 1"
    );
    registry.texts(&rows).await
}

async fn addresses(registry: &Database, source: &str) -> Vec<String> {
    let rows = format!(
        "select distinct canonical_address from verify.handoffs where safe_payload ->> 'source' = '{source}' order by 1"
    );
    registry.texts(&rows).await
}

const BIRTHS: &str = r#"
insert into birth_registry (id, entity_code, collection_name, born_at, actor_ref, source_system) values
    (-2147483648, 'lowest', 'ids', now(), 'a', 's'), (2147483647, 'highest', 'ids', now(), 'a', 's'),
    (0, 'zero', 'ids', now(), 'a', 's'), (-1, 'below zero', 'ids', now(), 'a', 's'),
    (101, 'end of time', 'times', 'infinity', 'a', 's'), (102, 'before time', 'times', '-infinity', 'a', 's'),
    (103, 'first day', 'times', '4714-11-24 00:00:00+00 BC', 'a', 's'), (104, 'last day', 'times', '294276-12-31 23:59:59.999999+00', 'a', 's'),
    (105, 'long ago', 'times', '0044-03-15 12:00:00+00 BC', 'a', 's'), (106, 'no time', 'times', null, 'a', 's'),
    (201, E'it''s "quoted" \\ back', E'\'; drop table birth_registry; --', now(), E'o\'actor', E'\'s'),
    (202, E'two\nlines\r\tand a tab', E'a=b/c%d{e}', now(), E'\n', ' '),
    (203, E'\x01\x1f\x7f', E'người \U0001F469\u200D\U0001F4BB \u202Ertl', now(), '', null),
    (204, '$1 %s {0} ${x} <b>', 'null', now(), 'null', 'undefined'),
    (205, '', 'blank code', now(), null, null), (206, ' ', ' ', now(), null, null);
insert into birth_registry (id, entity_code, collection_name, canonical_address, birth_payload, actor_ref) values
    (301, repeat('x', 10 << 20), 'wide', null, null, 'a'), (302, 'wide collection', repeat('y', 10 << 20), null, null, 'a'),
    (303, 'wide address', 'wide', (select string_agg(md5(g::text), '') from generate_series(1, 330000) g), null, 'a'),
    (304, 'wide content', 'wide', null, jsonb_build_object('body', repeat('z', 10 << 20)), 'a'),
    (305, 'wide actor', 'wide', null, null, repeat('w', 10 << 20));
"#;

async fn births_of_every_sort(mode: &str) {
    let registry = active().await;
    registry.sql(QUICK).await;
    let mut daemon = registry.capturing(mode, "1h").await;
    registry.sql(BIRTHS).await;
    settled(&registry, "birth_registry", "select id::text from birth_registry").await;
    let set_aside = letters(&registry, "birth_registry").await;
    // Megabytes are no address; megabytes of content are none of our business.
    assert_eq!(
        set_aside,
        [
            "206 blank_reference",
            "301 oversized_address",
            "302 oversized_address",
            "303 oversized_address",
            "305 oversized_address"
        ],
        "{mode}"
    );
    let times = "select string_agg(occurred_at::text, ', ' order by (safe_payload ->> 'source_key')::int) from verify.handoffs
                  where safe_payload ->> 'source_key' in ('101', '102', '103', '104', '105')";
    registry.sql("set timezone = 'UTC'").await;
    assert_eq!(
        registry.text(times).await,
        "infinity, -infinity, 4714-11-24 00:00:00+00 BC, 294276-12-31 23:59:59.999999+00, 0044-03-15 12:00:00+00 BC"
    );
    let verbatim = "select count(*) from birth_registry b join verify.handoffs h on h.safe_payload ->> 'source_key' = b.id::text
                     where h.event_type = 'governance.handoff.object_born' and h.canonical_address
                           <> case when b.id = 205 then 'birth_registry:205' else b.collection_name || ':' || b.entity_code end";
    assert_eq!(registry.number(verbatim).await, 0, "{mode}: addresses are as they were written");
    let finite = "select isfinite(last_watermark_ts)::int::bigint from gov_worker_cursor where source_name = 'birth_registry' and metadata ? 'id'";
    assert_eq!(registry.number(finite).await, 1, "{mode}");
    assert!(daemon.has_ended().is_none(), "{mode}: {}", daemon.log());
    assert_ne!(cli(&registry.url, &["status", "--json"]).await.code, 2, "{mode}");
    done(&registry.url, &["audit", "--full", "--check"]).await;
    drop(daemon);
}

#[tokio::test]
async fn births_of_every_sort_are_handed_off_or_set_aside_while_polling() {
    births_of_every_sort("poll").await;
}

#[tokio::test]
async fn births_of_every_sort_are_handed_off_or_set_aside_while_streaming() {
    births_of_every_sort("stream").await;
}

#[tokio::test]
async fn what_was_captured_at_the_ends_of_time_is_drained_like_the_rest() {
    let registry = active().await;
    done(&registry.url, &["types", "deactivate", "--all"]).await;
    let narrow = BIRTHS
        .split("insert into birth_registry (id, entity_code, collection_name, canonical_address")
        .next();
    registry.sql(narrow.expect("the narrow ones")).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(registry.number("select count(*) from verify.handoffs").await, 0);
    done(&registry.url, &["types", "activate", "--all"]).await;
    assert_eq!(registry.number("select count(*) from verify.handoffs").await, 15);
    let ends =
        "select count(*) from verify.handoffs where not isfinite(occurred_at) or occurred_at < '0001-01-01'";
    assert_eq!(registry.number(ends).await, 4);
}

/// Names that are quoted, broken, injected and formatted, and that look like our own places.
const NAMES: &str = r#"
create schema "we""ird
schema";
create table "we""ird
schema"."{id}'; drop table birth_registry; --" ("i""d" int8 primary key, "na me {table}" text, "nu%s" numeric, "a't" timestamptz default now());
"#;
const NAMES_SOURCE: &str = r#"
[[source]]
name = "name's \"quoted\" {id}"
schema = "we\"ird\nschema"
table = "{id}'; drop table birth_registry; --"
id = { column = "i\"d", type = "int8" }
order = { column = "a't", type = "timestamptz" }
columns = ["i\"d", "na me {table}", "nu%s", "a't"]
[[source.rule]]
kind = "governance.handoff.object_born"
object_type = "{nu%s}"
object_ref = "{i\"d}"
group = [["n'\"=/\n", "{nu%s}"]]
"#;

#[tokio::test]
async fn names_that_are_quoted_broken_and_injected_are_names() {
    for mode in ["poll", "stream"] {
        let (registry, daemon) = capturing(mode, NAMES, NAMES_SOURCE, "1h").await;
        let table = "\"we\"\"ird\nschema\".\"{id}'; drop table birth_registry; --\"";
        let rows = format!(
            "insert into {table} (\"i\"\"d\", \"nu%s\") values (-9223372036854775808, 'NaN'), (9223372036854775807, 'Infinity'),
             (0, '-Infinity'), (-1, 1e131071), (1, 1e-16383), (2, -0.0), (3, 123456789012345678901234567890.0987654321)"
        );
        registry.sql(&rows).await;
        let source = "name''s \"quoted\" {id}";
        settled(&registry, source, &format!("select \"i\"\"d\"::text from {table}")).await;
        assert_eq!(
            addresses(&registry, source).await,
            ["-1", "-9223372036854775808", "0", "1", "2", "3", "9223372036854775807"],
            "{mode}"
        );
        // Conservation, certificates and audits live with the ends of the type too.
        drop(daemon);
        done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
        done(&registry.url, &["audit", "--full", "--check"]).await;
    }
}

const KEYS: &str = "
create table text_keys (id text primary key, label text);
create table uuid_keys (id uuid primary key, label text);
create table large (id text primary key, label text);
";
/// A source of one of these tables.
fn keys(table: &str, id_type: &str, object_ref: &str, group: &str) -> String {
    source(table, id_type, &["id", "label"]) + &rule("object_born", "thing", object_ref, ["g", group])
}

#[tokio::test]
async fn keys_of_every_sort_have_a_signal_or_a_letter_of_their_own() {
    let sources = keys("text_keys", "text", "{id}", "keys")
        + &keys("uuid_keys", "uuid", "{id}", "keys")
        + &keys("large", "text", "large:{id}", "{label}");
    for mode in ["poll", "stream"] {
        let (registry, daemon) = capturing(mode, &format!("{QUICK}; {KEYS}"), &sources, "1s").await;
        registry
            .sql(
                "insert into text_keys values ('', 'empty'), (' ', 'blank'), (E'\\n', 'line'), ('it''s \"x\"', 'quotes'), ('a:b', 'colon'),
                     (repeat('k', 2600), 'long'), ((select string_agg(md5(g::text), '') from generate_series(1, 83) g), 'as long as it gets'),
                     (repeat('k', 100000), 'longer, as it compresses');
                 insert into uuid_keys values ('00000000-0000-0000-0000-000000000000', 'lowest'), ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'highest');
                 insert into large values ('ten megabytes', repeat('n', 10 << 20)), ('and one', repeat('n', (10 << 20) + 1))",
            )
            .await;
        for (table, keys) in
            [("text_keys", "select id from text_keys"), ("uuid_keys", "select id::text from uuid_keys")]
        {
            settled(&registry, table, keys).await;
        }
        assert_eq!(letters(&registry, "uuid_keys").await, Vec::<String>::new(), "{mode}");
        let blank = letters(&registry, "text_keys").await;
        let (refused, mut blank): (Vec<_>, Vec<_>) =
            blank.into_iter().partition(|l| l.ends_with("refused_by_database"));
        blank.sort();
        assert_eq!(blank, ["\n blank_reference", "  blank_reference", " blank_reference"], "{mode}");
        assert!(refused.len() <= 1, "{mode}: {refused:?}");
        until("megabytes are no group", async || letters(&registry, "large").await.len() >= 2).await;
        assert_eq!(letters(&registry, "large").await.len(), 2, "{mode}: two rows, two letters");
        drop(daemon);
        done(&registry.url, &["audit", "--full", "--check", "--source", "text_keys"]).await;
    }
}

const CARRIERS: &str =
    "create table carriers (id int primary key, label text, extra jsonb, body text, raw_bytes bytea)";

/// `carriers` with one more column than it needs.
fn carriers(column: &str) -> String {
    source("carriers", "int4", &["id", "label", column])
        + &rule("object_born", "carrier", "carrier:{id}", ["g", "{label}"])
}

#[tokio::test]
async fn contents_in_an_address_column_are_refused_at_any_depth_and_never_enqueued() {
    for mode in ["poll", "stream"] {
        let (registry, daemon) = capturing(mode, CARRIERS, &carriers("extra"), "1h").await;
        registry
            .sql(
                r#"insert into carriers (id, label, extra) values
                     (1, 'fine', '{"kind": "password", "in": [{"n": 1}]}'), (2, 'top', '{"password": "canary-8d1"}'),
                     (3, 'deep', '{"a": [{"b": {"c": [1, {"personal_data": "canary-8d1"}]}}]}'),
                     (4, '{"t\u006fken": "canary-8d1"}', null), (5, 'named', '{"a": {"embedding": ["canary-8d1"]}}'),
                     (6, 'unnamed', (select jsonb_agg(g / 7.0) from generate_series(1, 300) g)),
                     (7, (select repeat('[', 20000) || '{"secret": "canary-8d1"}'), null), (8, 'none', null)"#,
            )
            .await;
        settled(&registry, "carriers", "select id::text from carriers").await;
        assert_eq!(addresses(&registry, "carriers").await, ["carrier:1", "carrier:8"], "{mode}");
        assert_eq!(
            letters(&registry, "carriers").await,
            [
                "2 queue.payload_violation",
                "3 queue.payload_violation",
                "4 queue.payload_violation",
                "5 queue.nvsz_violation",
                "6 queue.nvsz_violation",
                "7 queue.payload_violation",
            ],
            "{mode}"
        );
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter where attempts > 1").await, 0);
        let issues = "select string_agg(coalesce_key, ', ' order by coalesce_key) from system_issues
                       where issue_kind like 'queue.%' and resolved_at is null";
        assert_eq!(
            registry.text(issues).await,
            "queue.nvsz_violation:carriers, queue.payload_violation:carriers"
        );
        for table in
            ["event_outbox", "event_pending", "iu_route_dead_letter", "system_issues", "gov_candidate_group"]
        {
            let told = format!("select count(*) from {table} e where e::text like '%canary-8d1%'");
            assert_eq!(registry.number(&told).await, 0, "{mode}: {table}");
        }
        assert!(!daemon.log().contains("canary-8d1"), "{mode}");
        // As long as a letter of it is open, and no longer.
        let discard = ["dlq", "discard", "--source", "carriers", "--reason", "a producer's mistake"];
        done(&registry.url, &[&discard[..], &["--code", "queue.payload_violation"]].concat()).await;
        assert!(registry.text_if_any(issues).await.is_some(), "vectors are still open");
        done(&registry.url, &[&discard[..], &["--all"]].concat()).await;
        assert_eq!(registry.text_if_any(issues).await, None, "{mode}");
        drop(daemon);
    }
}

#[tokio::test]
async fn a_definition_that_would_carry_contents_is_refused_with_a_finding() {
    let registry = active().await;
    registry.sql(CARRIERS).await;
    for column in ["body", "raw_bytes"] {
        let file = TemporaryFile::new("carriers.toml", &carriers(column));
        let refused = cli(&registry.url, &["sources", "apply", file.path()]).await;
        let said = refused.err;
        assert_eq!(refused.code, 1, "{said}");
        assert!(said.contains("queue.payload_violation") && said.contains(column), "{said}");
        assert_eq!(cli(&registry.url, &["sources", "check", file.path()]).await.code, 1);
        let there = "select count(*) from gov_worker_cursor where source_name = 'carriers'";
        assert_eq!(registry.number(there).await, 0);
    }
    let open = "select count(*) from system_issues where coalesce_key = 'queue.payload_violation:definition:carriers' and resolved_at is null";
    assert_eq!(registry.number(open).await, 1);
    register(&registry.url, &carriers("extra")).await;
    assert_eq!(registry.number(open).await, 0, "mended");
}

#[tokio::test]
async fn a_row_that_matches_every_rule_has_every_signal_once() {
    let kinds = crate::support::fixture::TEN;
    let everywhere = "scope = []\nbumps_ruleset = true\n";
    let rules = kinds.iter().chain(&kinds).map(|kind| rule(kind, "t", "t:{id}", ["kind", kind]) + everywhere);
    let sources = source("everything", "int4", &["id"]) + &rules.collect::<String>();
    for mode in ["poll", "stream"] {
        let table = "create table everything (id int primary key)";
        let (registry, daemon) = capturing(mode, table, &sources, "1h").await;
        registry.sql("insert into everything select generate_series(1, 3)").await;
        let all = "select count(*) from verify.handoffs where safe_payload ->> 'source' = 'everything'";
        until("all of them", async || registry.number(all).await == 30).await;
        settled(&registry, "everything", "select id::text from everything").await;
        assert_eq!(registry.number(all).await, 30, "{mode}: once each, although each kind has two rules");
        assert_eq!(letters(&registry, "everything").await, Vec::<String>::new());
        drop(daemon);
    }
}

/// A database that takes any bytes for text.
async fn sql_ascii(name: &str) -> Database {
    let cluster = blocking(cluster).await;
    let admin = connect(&cluster.url("postgres")).await;
    let create =
        format!("create database {name} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0");
    admin.batch_execute(&create).await.expect("a SQL_ASCII database");
    active_of(name, cluster.url(name)).await
}

#[tokio::test]
async fn bytes_that_are_no_text_are_spelt_out_and_stay_different() {
    for mode in ["poll", "auto"] {
        let registry = sql_ascii(&format!("ascii_{mode}")).await;
        registry.sql(QUICK).await;
        registry.sql("create table text_keys (id text primary key, label text)").await;
        register(&registry.url, &keys("text_keys", "text", "{id}", "keys")).await;
        registry
            .sql("alter table event_outbox add constraint no_poison check (canonical_address not like '%poison%')")
            .await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1s")]);
        // A stream would end at the first such row, and so is not begun.
        registry.until_mode("poll").await;
        registry
            .sql(
                r"insert into birth_registry (id, entity_code, collection_name) values
                    (1, convert_from('\xff', 'SQL_ASCII'), 'c'), (2, convert_from('\xfe', 'SQL_ASCII'), 'c'),
                    (3, convert_from('\x61c3', 'SQL_ASCII'), 'c'), (4, 'tiếng Việt', 'c'),
                    (5, repeat('ế', 100) || ' poison', 'c'), (6, convert_from('\xff', 'SQL_ASCII') || ' poison', 'c');
                  insert into text_keys values (convert_from('\xff', 'SQL_ASCII'), 'a'), (convert_from('\xfe', 'SQL_ASCII'), 'b'), ('plain', 'c');
                  select setval(pg_get_serial_sequence('birth_registry', 'id'), 1000)",
            )
            .await;
        settled(&registry, "birth_registry", "select id::text from birth_registry").await;
        assert_eq!(
            addresses(&registry, "birth_registry").await,
            ["c1:ordinary1", "c:a\u{FFFD}c3", "c:tiếng Việt", "c:\u{FFFD}fe", "c:\u{FFFD}ff"],
            "{mode}"
        );
        assert_eq!(
            letters(&registry, "birth_registry").await,
            ["5 refused_by_database", "6 refused_by_database"],
            "{mode}"
        );
        let keys = "select count(*) from iu_route_dead_letter where route_code = 'text_keys' and failure_code = 'malformed_key'";
        until("keys that are no text are set aside", async || registry.number(keys).await == 2).await;
        until("and the others pass", async || addresses(&registry, "text_keys").await == ["plain"]).await;
        drop(daemon);
        let stream = cli(&registry.url, &["run", "--once", "--mode", "stream"]).await;
        assert_eq!(stream.code, 2);
        assert!(stream.err.contains("SQL_ASCII"));
        assert_eq!(
            registry
                .number("select count(*) from pg_replication_slots where database = current_database()")
                .await,
            0
        );
    }
}
