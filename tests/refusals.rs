//! Wrong input and missing means: one line on stderr that says what to do, the right exit code, nothing written. Under
//! `auto` a server that cannot stream is polled, and `status` says why.

use gov_handoff::embedded::ClusterOptions;

use crate::support::sources::{rule, source};
use crate::support::{
    Daemon, Database, TemporaryFile, active, active_on, blocking, cli, cluster, connect, done, options,
    private_cluster,
};

/// Everything in the tables that are ours to write, as one text.
async fn contents(registry: &Database) -> String {
    let tables = "select string_agg(format('select %L || md5(coalesce(string_agg(t::text, chr(10) order by t::text), '''')) as x
                                              from public.%I t', c.relname, c.relname), ' union all ')
                    from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'";
    let each = registry.text(tables).await;
    let slots = registry
        .number("select count(*) from pg_replication_slots where database = current_database()")
        .await;
    let publications = registry.number("select count(*) from pg_publication").await;
    let all = registry.text(&format!("select string_agg(x, ' ' order by x) from ({each}) u")).await;
    format!("{all} slots {slots} publications {publications}")
}

/// Runs a command that must fail with `code`, in one line that contains each of `words`.
async fn refused(url: &str, arguments: &[&str], code: i32, words: &[&str]) {
    let output = cli(url, arguments).await;
    let said = output.err;
    assert_eq!(output.code, code, "{arguments:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?} must say one line: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?} must mention `{word}`: {said}");
    }
    assert!(!said.contains("hunter2"), "a secret in {said}");
}

/// A single run that one source fails: it ends with the reason in its last line, after every other source was handed off.
async fn refused_after_the_others(registry: &Database, url: &str, words: &[&str]) {
    let change = "insert into registry_changelog (entity_type, entity_code, action) values ('collection', 'x', 'update')";
    registry.sql(change).await;
    let output = cli(url, &["run", "--once", "--mode", "poll"]).await;
    let said = output.err;
    assert_eq!(output.code, 2, "{said}");
    let last = said.trim_end().lines().last().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "the last line must mention `{word}`: {said}");
    }
    let missing = "select count(*) from registry_changelog c where entity_type = 'collection' and not exists
        (select from verify.handoffs h where h.event_subject_table = 'registry_changelog' and h.safe_payload ->> 'source_key' = c.id::text)";
    assert_eq!(registry.number(missing).await, 0, "the other sources are handed off");
}

/// Commands that talk to the database, one of each sort.
const COMMANDS: [&[&str]; 5] = [
    &["migrate"],
    &["run", "--once"],
    &["status"],
    &["sources", "apply"],
    &["replay", "--source", "birth_registry", "--from", "1"],
];

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_what_to_check() {
    let port = blocking(cluster).await.port();
    for command in COMMANDS {
        refused("postgres//u:hunter2@h/d", command, 2, &["database URL", "expected postgres://"]).await;
        refused(
            "postgres://u:hunter2@127.0.0.1:1/d",
            command,
            2,
            &["127.0.0.1:1/d", "is the server running"],
        )
        .await;
        refused(
            &format!("postgres://postgres@127.0.0.1:{port}/absent"),
            command,
            2,
            &["absent", "create it"],
        )
        .await;
    }
    refused("postgres://u@no-such-host.invalid/d", &["status"], 2, &["no-such-host.invalid", "DATABASE_URL"])
        .await;
    refused("postgres://u@h/d?sslmode=sometimes", &["status"], 2, &["sometimes", "verify-full"]).await;
    refused("postgres://u:hun@ter2@127.0.0.1:1/d", &["status"], 2, &["percent-encode", "%40"]).await;
    refused("postgres://u:hunter2@h/d?sslcert=c.pem", &["status"], 2, &["sslcert"]).await;
}

#[tokio::test]
async fn a_wrong_password_is_refused_without_being_repeated() {
    let cluster = private_cluster(ClusterOptions { password: Some("right".to_owned()), ..options() }).await;
    let url = format!("postgres://postgres:hunter2@127.0.0.1:{}/postgres", cluster.port());
    for command in COMMANDS {
        refused(&url, command, 2, &["password", "pg_hba.conf"]).await;
    }
    let nobody = format!("postgres://nobody:hunter2@127.0.0.1:{}/postgres", cluster.port());
    refused(&nobody, &["run"], 2, &["nobody", "check user and password"]).await;
}

#[tokio::test]
async fn a_database_that_was_not_migrated_says_so() {
    let cluster = blocking(cluster).await;
    cluster.create_database("unmigrated", None).await.expect("create");
    let url = cluster.url("unmigrated");
    for command in
        [&["run"][..], &["status"], &["replay", "--source", "x", "--from", "1"], &["types", "list"]]
    {
        refused(&url, command, 2, &["gov-handoff migrate"]).await;
    }
    let client = connect(&url).await;
    let tables: i64 = client
        .query_one("select count(*) from pg_class where relnamespace = 'public'::regnamespace", &[])
        .await
        .expect("count")
        .get(0);
    assert_eq!(tables, 0);
}

#[tokio::test]
async fn bad_input_is_refused_in_one_line_and_writes_nothing() {
    let registry = active().await;
    registry.births("b", 3).await;
    registry.sql("create table keyless (a text)").await;
    let before = contents(&registry).await;
    let url = &registry.url;

    let broken = TemporaryFile::new("broken.toml", "mode = \"auto\"\nworker = [");
    refused(url, &["--config", broken.path(), "status"], 2, &[broken.path(), "line 2"]).await;
    let unknown = TemporaryFile::new("unknown.toml", "mode = \"auto\"\nwal_lever = \"up\"\n");
    refused(url, &["--config", unknown.path(), "run", "--once"], 2, &["line 2", "wal_lever"]).await;
    let badly = TemporaryFile::new("badly.toml", "poll_interval = \"soon\"\n");
    refused(url, &["--config", badly.path(), "status"], 2, &["poll_interval", "5s"]).await;
    refused(url, &["--config", "absent.toml", "status"], 2, &["absent.toml"]).await;
    refused(url, &["run", "--mode", "sideways"], 2, &["sideways", "auto, stream, poll"]).await;
    refused(url, &["run", "--slot", "Not A Slot"], 2, &["Not A Slot", "a-z"]).await;
    refused(url, &["replay", "--source", "nowhere", "--from", "1"], 2, &["nowhere", "birth_registry"]).await;
    refused(url, &["replay", "--source", "birth_registry", "--from", "soon"], 2, &["soon", "integer"]).await;
    let from = ["replay", "--source", "birth_registry", "--from", "2026-11-16T25:00"];
    refused(url, &from, 2, &["2026-11-16T25:00", "integer", "2026-11-16T12:00:00Z"]).await;
    refused(url, &["audit", "--full", "--since", "2026-11-16 soon"], 2, &["2026-11-16 soon", "time"]).await;
    refused(url, &["migrate", "revert"], 1, &["3 source rows", "--discard"]).await;
    refused(url, &["status", "--slot", "Not A Slot"], 2, &["Not A Slot", "a-z"]).await;
    // What can be told without a server is.
    for command in
        [&["retire", "--before", "2026-01-01T99:00"][..], &["dlq", "list", "--since", "2026-02-30"]]
    {
        refused("postgres://u@127.0.0.1:1/d", command, 2, &["is no time", "2026-11-16T12:00:00Z"]).await;
    }
    for command in ["activate", "deactivate"] {
        refused("postgres://u@127.0.0.1:1/d", &["types", command], 2, &["--all", "--findings"]).await;
    }

    let of = |table: &str, column: &str| {
        let born = rule("object_born", "x", &format!("x:{{{column}}}"), ["scope", "x"]);
        source(table, "int4", &["id", column]) + &born
    };
    let good = of("birth_registry", "entity_code");
    for (name, text, words) in [
        ("torn", format!("{good}\n[[source]\n"), &["line 11"][..]),
        (
            "no-table",
            format!("{good}{}", of("absent", "code")),
            &["public.absent", "does not exist", "create it"],
        ),
        ("no-column", of("birth_registry", "entity_cod"), &["entity_cod", "it has", "entity_code"]),
        ("no-id", of("keyless", "a"), &["keyless", "no column id"]),
        ("in-rule", good.replace("x:{entity_code}", "x:{status}"), &["status"]),
        ("key", good.replace("columns", "colums"), &["colums"]),
        ("type", good.replace("int4", "int2"), &["int2"]),
        (
            "twice",
            format!(
                "{good}{}",
                good.replace("name = \"birth_registry\"", "name = \"b\"\ntable = \"birth_registry\"")
            ),
            &["same table"],
        ),
    ] {
        let file = TemporaryFile::new(&format!("{name}.sources.toml"), &text);
        refused(url, &["sources", "apply", file.path()], 2, words).await;
    }
    assert_eq!(contents(&registry).await, before, "something was written");
}

#[tokio::test]
async fn an_unknown_source_kind_or_type_is_refused_with_those_there_are() {
    let registry = active().await;
    let before = contents(&registry).await;
    let of = ["--source", "nowhere"];
    for command in [
        &["replay", "--from", "1"][..],
        &["audit", "--check"],
        &["trust", "grant", "--producer", "x"],
        &["trust", "grant", "--producer", "x", "--dry-run"],
        &["trust", "revoke", "--producer", "x"],
        &["dlq", "list"],
        &["dlq", "replay"],
        &["dlq", "discard", "--reason", "x"],
        &["dlq", "supersede", "--reason", "x"],
    ] {
        let words = ["unknown source nowhere", "birth_registry, event_outbox, governance_ruleset"];
        refused(&registry.url, &[command, &of[..]].concat(), 2, &words).await;
    }
    refused(
        &registry.url,
        &["sources", "remove", "nowhere"],
        2,
        &["unknown source nowhere", "birth_registry"],
    )
    .await;
    for verb in ["activate", "deactivate"] {
        // The good one beside it stays as it is.
        let words = ["unknown event type governance.handoff.nonsense", "governance.handoff.object_born"];
        refused(&registry.url, &["types", verb, "object_born", "nonsense"], 2, &words).await;
    }
    let words =
        ["unknown kind of finding nonsense", "handoff_lag", "queue.payload_violation", "untrusted_source"];
    for more in [&[][..], &["--json"], &["--all"]] {
        refused(&registry.url, &[&["findings", "--kind", "nonsense"], more].concat(), 2, &words).await;
    }
    assert_eq!(contents(&registry).await, before, "something was written");
    for kind in gov_handoff::core::finding::KINDS {
        assert_eq!(done(&registry.url, &["findings", "--kind", kind]).await, "nothing is open\n", "{kind}");
    }
    // Found by somebody's own gate, or by a later version.
    registry.sql("select gov_handoff.gov_finding_raise('custom', 'custom:x', 'info')").await;
    assert!(done(&registry.url, &["findings", "--kind", "custom"]).await.contains("custom:x"));
    // Letters outlive their source.
    registry
        .sql("insert into iu_route_dead_letter (worker_name, event_ref, event_domain, event_type, route_code, idempotency_key, failure_code)
              values ('gov_handoff_intake', gen_random_uuid(), 'governance', 'governance.handoff.refused', 'nowhere', 'nowhere:1', 'x')")
        .await;
    assert!(done(&registry.url, &["dlq", "list", "--source", "nowhere"]).await.contains("nowhere"));
    done(&registry.url, &["dlq", "discard", "--source", "nowhere", "--reason", "its source is gone"]).await;
    assert!(
        done(&registry.url, &["dlq", "list", "--source", "nowhere"]).await.contains("no open dead letters")
    );
}

#[tokio::test]
async fn a_missing_source_table_is_refused_once_and_lived_with_by_the_daemon() {
    let registry = active().await;
    registry.sql("drop table pivot_definitions").await;
    registry.births("b", 3).await;
    let words = ["public.pivot_definitions", "does not exist"];
    refused_after_the_others(&registry, &registry.url, &words).await;
    let daemon = registry.daemon("poll", &[]);
    registry.until_all_handed_off().await;
    registry.until_finding("source_unreadable").await;
    drop(daemon);
}

/// `stream` refuses with `words` and writes nothing; `auto` polls, hands off, and says the same words in `status`.
async fn cannot_stream(registry: &Database, url: &str, words: &[&str]) {
    registry.births("b", 10).await;
    let before = contents(registry).await;
    refused(url, &["run", "--mode", "stream"], 2, words).await;
    refused(url, &["run", "--mode", "stream", "--once"], 2, words).await;
    refused(url, &["replication", "setup"], 2, words).await;
    assert_eq!(contents(registry).await, before, "something was written");
    let daemon = Daemon::eager(url, "auto", &[]);
    registry.until_all_handed_off().await;
    registry.until_mode("poll").await;
    let status = cli(url, &["status", "--json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("json");
    let (mode, reason) = (&status["worker"]["mode"], status["worker"]["reason"].as_str().unwrap_or_default());
    assert_eq!(mode, "poll", "{status}");
    for word in words {
        assert!(reason.contains(word), "status must say `{word}`: {reason}");
    }
    let captured = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' not in ('poll', 'reconcile', 'certify')";
    assert_eq!(registry.number(captured).await, 0);
    registry.until_finding("handoff_fallback").await;
    drop(daemon);
    registry.births("once", 2).await;
    done(url, &["run", "--once"]).await;
    registry.until_all_handed_off().await;
}

#[tokio::test]
async fn without_logical_wal_stream_is_refused_and_auto_polls() {
    let cluster = private_cluster(ClusterOptions { wal_level: "replica".to_owned(), ..options() }).await;
    let registry = active_on(&cluster).await;
    cannot_stream(&registry, &registry.url, &["wal_level is replica", "wal_level = logical", "restart"])
        .await;
}

#[tokio::test]
async fn without_the_replication_attribute_stream_is_refused_and_auto_polls() {
    let cluster = private_cluster(options()).await;
    let registry = active_on(&cluster).await;
    registry
        .sql("create role plain login in role gov_handoff_worker;
              grant select (xmin, ctid, id, entity_code, collection_name, canonical_address, born_at, status, source_system, actor_ref) on birth_registry to plain;
              grant select on registry_changelog, pivot_definitions, governance_ruleset, event_outbox to plain")
        .await;
    let url = registry.url.replace("postgres://postgres@", "postgres://plain@");
    cannot_stream(&registry, &url, &["REPLICATION", "--mode poll"]).await;
}

/// Of two rows with one key the second would be taken for the first and absorbed, and every proof would come out clean.
#[tokio::test]
async fn a_source_whose_key_may_stand_for_several_rows_is_refused() {
    let registry = active().await;
    registry
        .sql(
            "create table loose (id int not null, code text);
              create table of_two (tenant int, id int, code text, primary key (tenant, id));
              create table of_some (id int not null, code text);
              create unique index on of_some (id) where code is not null;
              create table by_expression (id int not null, code text);
              create unique index on by_expression (id, lower(code));
              create table nullable (id text unique, code text);
              create table parent (id int primary key, code text);
              create table child () inherits (parent);
              create table fine (id int not null, code text, unique (id) include (code))",
        )
        .await;
    let born = rule("object_born", "thing", "thing:{code}", ["object_class", "thing"]);
    let check = async |table: &str, id_type: &str, words: &[&str]| {
        let file = TemporaryFile::new("sources.toml", &(source(table, id_type, &["id", "code"]) + &born));
        refused(&registry.url, &["sources", "apply", file.path()], 2, words).await;
    };
    for table in ["loose", "of_two", "of_some", "by_expression"] {
        check(table, "int4", &[table, "unique index of its own"]).await;
    }
    check("nullable", "text", &["nullable", "not null"]).await;
    check("parent", "int4", &["parent", "inherit"]).await;
    let fine = TemporaryFile::new("sources.toml", &(source("fine", "int4", &["id", "code"]) + &born));
    done(&registry.url, &["sources", "apply", fine.path()]).await;
}

#[tokio::test]
async fn a_source_that_could_be_read_and_never_certified_is_refused_with_the_grant_it_needs() {
    let registry = active().await;
    let role = format!("unproven_{}", registry.name);
    registry
        .sql(&format!(
            "create role {role} login in role gov_handoff_worker;
             grant select (id, entity_code, collection_name, canonical_address, born_at, status, source_system, actor_ref)
                 on birth_registry to {role};
             grant select on registry_changelog, pivot_definitions, governance_ruleset, event_outbox to {role}"
        ))
        .await;
    let url = registry.url.replace("postgres://postgres@", &format!("postgres://{role}@"));
    let said = ["birth_registry", "xmin and ctid", "grant select (xmin, ctid) on"];
    refused_after_the_others(&registry, &url, &said).await;
    registry.sql(&format!("grant select (xmin, ctid) on birth_registry to {role}")).await;
    done(&url, &["run", "--once", "--mode", "poll"]).await;
}

#[tokio::test]
async fn without_a_free_slot_stream_is_refused_and_auto_polls() {
    let cluster = private_cluster(ClusterOptions { max_replication_slots: 1, ..options() }).await;
    let registry = active_on(&cluster).await;
    registry.sql("select pg_create_logical_replication_slot('taken', 'pgoutput')").await;
    cannot_stream(&registry, &registry.url, &["no free replication slot", "max_replication_slots"]).await;
}

#[tokio::test]
async fn a_source_whose_definition_cannot_be_read_is_named_and_can_be_removed() {
    let registry = active().await;
    let spoilt =
        "update gov_worker_cursor set metadata = jsonb_set(metadata, '{id,type}', '\"of another build\"')
                   where source_name = 'pivot_definitions'";
    registry.sql(spoilt).await;
    refused_after_the_others(&registry, &registry.url, &["pivot_definitions"]).await;
    let daemon = registry.daemon("poll", &[]);
    registry.births("b", 3).await;
    registry.until_all_handed_off().await;
    registry.until_finding("source_unreadable").await;
    drop(daemon);
    done(&registry.url, &["sources", "remove", "pivot_definitions"]).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
}

/// A source of the table `table` under another name; rules follow its head.
fn named(name: &str, table: &str, id_type: &str) -> String {
    let head = source(table, id_type, &["id", "code"]);
    let head =
        head.replacen(&format!("name = \"{table}\""), &format!("name = \"{name}\"\ntable = \"{table}\""), 1);
    head + &rule("object_born", "thing", "thing:{code}", ["object_class", "thing"])
}

#[tokio::test]
async fn a_name_stands_for_one_table_and_a_table_has_one_name() {
    let registry = active().await;
    let url = &registry.url;
    registry
        .sql(
            "create table things (id int primary key, other int unique not null default 7, code text);
              create table others (id int primary key, code text); create table idle (id uuid primary key, code text);
              create table spare (id int primary key, code text);
              insert into things (id, code) values (1, 'a')",
        )
        .await;
    let apply = async |text: &str| {
        let file = TemporaryFile::new("sources.toml", text);
        done(url, &["sources", "apply", file.path()]).await
    };
    apply(&(named("things", "things", "int4") + &named("typo", "idle", "uuid"))).await;
    done(url, &["run", "--once", "--mode", "poll"]).await;
    let by_other = named("things", "things", "int4")
        .replace("column = \"id\"", "column = \"other\"")
        .replace("[\"id\"", "[\"other\"");
    let cases = [
        (
            named("things_2", "things", "int4"),
            ["public.things is source things", "handed off again", "keep the name things"],
        ),
        (
            named("things", "others", "int4"),
            ["source things stands for public.things", "public.others", "another name"],
        ),
        (by_other, ["source things stands for public.things", "integer key id", "integer key other"]),
    ];
    for removed in [false, true] {
        if removed {
            // What was recorded under the name stays, and so does what the name stands for.
            done(url, &["sources", "remove", "things"]).await;
        }
        let before = contents(&registry).await;
        for (text, words) in &cases {
            // With a good one before it: all or none.
            let file = TemporaryFile::new("sources.toml", &(named("first", "spare", "int4") + text));
            refused(url, &["sources", "apply", file.path()], 1, words).await;
        }
        assert_eq!(contents(&registry).await, before, "something was written");
    }
    assert!(apply(&named("things", "things", "int4")).await.contains("things added"));
    done(url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(
        registry.number("select count(*) from verify.handoffs where event_subject_table = 'things'").await,
        1
    );

    // A table that was renamed is the same one; a name that recorded nothing is free again.
    registry.sql("alter table things rename to objects").await;
    assert!(apply(&named("things", "objects", "int4")).await.contains("things changed"));
    done(url, &["sources", "remove", "typo"]).await;
    assert!(apply(&named("idle", "idle", "uuid")).await.contains("idle added"));
}

#[tokio::test]
async fn a_partitioned_table_is_refused_and_its_partitions_are_taken() {
    let registry = active().await;
    registry
        .sql(
            "create table parted (id int primary key, code text) partition by range (id);
              create table low partition of parted for values from (0) to (100)",
        )
        .await;
    let file = TemporaryFile::new("sources.toml", &named("parted", "parted", "int4"));
    refused(
        &registry.url,
        &["sources", "apply", file.path()],
        2,
        &["public.parted is partitioned", "partitions"],
    )
    .await;
    let file = TemporaryFile::new("sources.toml", &named("low", "low", "int4"));
    done(&registry.url, &["sources", "apply", file.path()]).await;
    registry.sql("insert into parted values (1, 'a')").await;
    done(&registry.url, &["run", "--once", "--mode", "stream"]).await;
    assert_eq!(
        registry.number("select count(*) from verify.handoffs where event_subject_table = 'low'").await,
        1
    );
}
