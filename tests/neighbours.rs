//! Each source is on its own: one that cannot be read is a finding and costs its neighbours nothing.

use crate::support::sources::{register, rule, source};
use crate::support::{
    Daemon, Database, TemporaryFile, active_of, blocking, cli, cli_with, cluster, connect, done, migrated,
    until, within,
};
use std::time::{Duration, Instant};

const ROLES: &str = include_str!("../replication/roles.sql");
const QUICK: [(&str, &str); 2] =
    [("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms")];
const BIRTH: &str = "insert into birth_registry (entity_code, collection_name) values ('b', 'c')";
const CHANGE: &str =
    "insert into registry_changelog (entity_type, entity_code, action) values ('species', 's', 'retire')";
const FINDING: &str = "select count(*) from system_issues where coalesce_key = 'source_unreadable:birth_registry' \
                       and severity = 'high' and resolved_at is null";

/// A daemon's role, which row security binds.
async fn worker(db: &Database) -> String {
    let role = format!("neighbour_{}", db.name);
    db.sql(&format!("create role {role} login in role gov_handoff_worker")).await;
    db.sql(ROLES).await;
    db.url_as(&role)
}

async fn handed_off(db: &Database, table: &str) -> i64 {
    let signals =
        "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
    db.number(&format!("{signals} and event_subject_table = '{table}'")).await
}

async fn until_handed_off(db: &Database, table: &str, signals: i64) -> Duration {
    let begun = Instant::now();
    within(Duration::from_secs(30), &format!("{table} is handed off"), async || {
        let there = handed_off(db, table).await;
        if there >= signals { Ok(()) } else { Err(format!("{there} of {signals}")) }
    })
    .await;
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_security_on_one_source_is_a_finding_of_its_own_and_costs_the_others_nothing() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let url = worker(&db).await;
    let mut daemon = Daemon::start(&url, &["--mode", "poll"], &QUICK);
    db.sql(&format!("{BIRTH}; {CHANGE}")).await;
    until_handed_off(&db, "birth_registry", 1).await;
    until_handed_off(&db, "registry_changelog", 1).await;
    db.sql("alter table birth_registry enable row level security").await;
    db.sql(BIRTH).await;
    db.until(&format!("select ({FINDING}) = 1")).await;
    for n in 2..8 {
        db.sql(CHANGE).await;
        let took = until_handed_off(&db, "registry_changelog", n).await;
        assert!(took < Duration::from_secs(2), "the neighbour waited {took:?}");
    }
    assert_eq!(handed_off(&db, "birth_registry").await, 1);
    assert_eq!(db.number(FINDING).await, 1, "it stands as long as it is true");
    assert!(!daemon.log().contains("starting over"), "{}", daemon.log());
    db.sql("alter table birth_registry disable row level security").await;
    until_handed_off(&db, "birth_registry", 2).await;
    db.until(&format!("select ({FINDING}) = 0")).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

/// A source whose rows come as fast as they are handed off would have the lane for itself: its pass would never end.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_never_done_keeps_no_other_waiting() {
    const BACKLOG: i64 = 6_000;
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.sql(&format!(
        "{CODES}; insert into codes (id, label) select g, 'l' from generate_series(1, {BACKLOG}) g"
    ))
    .await;
    register(&db.url, &codes("batch_size = 1\n")).await;
    let _daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.until("select count(*) > 10 from event_outbox where event_subject_table = 'codes'").await;
    for births in 1..4 {
        db.sql(BIRTH).await;
        let took = until_handed_off(&db, "birth_registry", births).await;
        assert!(took < Duration::from_secs(5), "the birth waited {took:?}");
        assert!(handed_off(&db, "codes").await < BACKLOG, "the backlog was too short for this test");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_run_fails_for_one_source_after_the_others_were_handed_off() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let url = worker(&db).await;
    db.sql(&format!("alter table birth_registry enable row level security; {BIRTH}; {CHANGE}")).await;
    let once = cli_with(&url, &["run", "--mode", "poll", "--once"], &[]).await;
    assert_eq!(once.code, 2, "{}", once.err);
    assert!(once.err.contains("birth_registry"), "{}", once.err);
    assert_eq!(handed_off(&db, "registry_changelog").await, 1);
    assert_eq!(db.number(FINDING).await, 1);
    db.sql("alter table birth_registry disable row level security").await;
    done(&url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(handed_off(&db, "birth_registry").await, 1);
    assert_eq!(db.number(FINDING).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_of_all_goes_on_past_a_source_that_it_may_not_read() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let url = worker(&db).await;
    db.sql(&format!("{BIRTH}; {CHANGE}")).await;
    done(&url, &["run", "--mode", "poll", "--once"]).await;
    db.sql("alter table birth_registry enable row level security").await;
    db.sql("delete from event_outbox where event_subject_table = 'registry_changelog' and event_stream <> 'health'")
        .await;
    let audit = cli_with(&url, &["audit", "--full", "--json"], &[]).await;
    assert_eq!(audit.code, 2, "{}{}", audit.out, audit.err);
    assert!(audit.err.contains("audit of birth_registry"), "{}", audit.err);
    assert!(audit.out.contains("\"clean\":false,"), "{}", audit.out);
    assert_eq!(handed_off(&db, "registry_changelog").await, 1, "repaired though another could not be read");
}

/// A table of the test's own, with a source in TOML that reads it.
const CODES: &str = "create table codes (id int primary key, kind uuid, amount int, label text)";

fn codes(exclude: &str) -> String {
    source("codes", "int4", &["id", "kind", "amount", "label"])
        + exclude
        + &rule("object_born", "code", "code:{id}", ["kind", "{label}"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_the_server_cannot_evaluate_is_refused_before_it_is_stored() {
    let db = migrated().await;
    let role = format!("operator_{}", db.name);
    db.sql(&format!(
        "{CODES}; create schema closed; create table closed.codes (like codes including all);
         create role {role} login in role gov_handoff_operator;
         grant select on codes, closed.codes to {role}"
    ))
    .await;
    let url = db.url_as(&role);
    let stored = "select count(*) from gov_worker_cursor where source_name = 'codes' and metadata ? 'id'";
    let missing = codes("").replace("\"amount\"", "\"sum\"");
    let closed = codes("").replace("[[source]]\n", "[[source]]\nschema = \"closed\"\n");
    for (sources, words) in [
        (missing, ["public.codes", "has no column sum"]),
        (codes("exclude = [{ column = \"amount\", equals = \"x\" }]\n"), ["amount", "is no integer"]),
        (codes("exclude = [{ column = \"kind\", equals = \"aa\" }]\n"), ["kind", "is no uuid"]),
        // The catalogue finds nothing wrong with this one: the table may be read, the schema may not.
        (closed, ["closed.codes", "permission denied for schema closed"]),
    ] {
        let file = TemporaryFile::new("sources.toml", &sources);
        for command in ["apply", "check"] {
            let ran = cli(&url, &["sources", command, file.path()]).await;
            assert_ne!(ran.code, 0, "{command}: {sources}");
            for word in words {
                assert!((ran.out.clone() + &ran.err).contains(word), "`{word}`: {}{}", ran.out, ran.err);
            }
        }
        assert_eq!(db.number(stored).await, 0, "{sources}");
    }
    // Nor does it with this one, whose rows a policy would hide.
    db.sql("alter table codes enable row level security").await;
    let file = TemporaryFile::new("sources.toml", &codes(""));
    let ran = cli(&url, &["sources", "apply", file.path()]).await;
    assert!(ran.code != 0 && ran.err.contains("row-level security"), "{}", ran.err);
    assert_eq!(db.number(stored).await, 0);
    db.sql("alter table codes disable row level security").await;
    // A prefix is a question about text, whatever the type, and the rules answer it.
    let prefix = codes("exclude = [{ column = \"kind\", prefix = \"aa\" }]\n");
    let file = TemporaryFile::new("sources.toml", &prefix);
    done(&url, &["sources", "apply", file.path()]).await;
    db.sql("insert into codes values (1, 'aa000000-0000-0000-0000-000000000000', 1, 'a'), (2, null, 2, 'b')")
        .await;
    done(&db.url, &["types", "activate", "--all"]).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(handed_off(&db, "codes").await, 1);
}

/// A database whose encoding has bytes that are no character of UTF-8, 0x81 is one; with a source `named` beside the registry.
async fn win1252(name: &str) -> Database {
    let cluster = blocking(cluster).await;
    let admin = connect(&cluster.url("postgres")).await;
    let create =
        format!("create database {name} encoding 'WIN1252' lc_collate 'C' lc_ctype 'C' template template0");
    admin.batch_execute(&create).await.expect("a WIN1252 database");
    let registry = active_of(name, cluster.url(name)).await;
    registry.sql("create table named (id text primary key, label text)").await;
    let named =
        source("named", "text", &["id", "label"]) + &rule("object_born", "n", "n:{id}", ["l", "{label}"]);
    register(&registry.url, &named).await;
    registry
}

const BYTE: &str = r"convert_from('\x81', 'SQL_ASCII')";

async fn letters(registry: &Database) -> Vec<String> {
    let open = "select route_code || ' ' || failure_code from iu_route_dead_letter where resolved_at is null order by 1";
    registry.texts(open).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_character_without_an_equivalent_costs_one_row_and_not_the_source() {
    let registry = win1252("unsendable_rows").await;
    let daemon = registry.daemon("poll", &QUICK);
    registry.until_mode("poll").await;
    registry.births("before", 300).await;
    registry
        .sql(&format!(
            "insert into birth_registry (id, entity_code, collection_name)
             values (5001, {BYTE}, 'c'), (5002, 'café', 'c'), (5003, 'x', {BYTE}), (5004, 'y', 'c');
             insert into named values ('a', 'x'), ('b', {BYTE}), ('cé', 'y')"
        ))
        .await;
    registry.births("after", 300).await;
    registry.until_all_handed_off().await;
    let three = ["birth_registry unreadable_row", "birth_registry unreadable_row", "named unreadable_row"];
    until("three rows are set aside", async || letters(&registry).await == three).await;
    let of_named = "select string_agg(safe_payload ->> 'source_key', ',' order by safe_payload ->> 'source_key') from verify.handoffs
                     where event_subject_table = 'named'";
    until("and the others are not", async || registry.text_if_any(of_named).await.as_deref() == Some("a,cé"))
        .await;
    // Certificates and audits know them.
    let certified =
        "select count(*) from gov_worker_frontier where source_name in ('birth_registry', 'named')
                      and certified_at > now() - interval '2 seconds'";
    until("both are certified", async || registry.number(certified).await == 2).await;
    let unreadable =
        "select count(*) from system_issues where issue_kind = 'source_unreadable' and resolved_at is null";
    assert_eq!(registry.number(unreadable).await, 0);
    done(&registry.url, &["audit", "--full"]).await;
    done(&registry.url, &["audit"]).await;
    assert_eq!(letters(&registry).await, three);
    // A row that takes the key of one that was handed off, and cannot be read, is set aside too: the signals of its key are
    // not its own. Nothing tells it from a row that was changed after its handoff, so that one gets a letter as well.
    registry
        .sql(&format!("delete from birth_registry where id = 5004;
                       insert into birth_registry (id, entity_code, collection_name) values (5004, {BYTE}, 'c')"))
        .await;
    let four =
        ["birth_registry unreadable_row"; 3].into_iter().chain(["named unreadable_row"]).collect::<Vec<_>>();
    until("the fourth row is set aside", async || letters(&registry).await == four).await;
    cli(&registry.url, &["audit", "--full"]).await;
    assert_eq!(letters(&registry).await, four);
    // Replaying changes nothing before the rows are repaired, and everything afterwards.
    let replay = ["dlq", "replay", "--code", "unreadable_row", "--reason", "repaired"];
    assert_eq!(cli(&registry.url, &replay).await.code, 1);
    assert_eq!(letters(&registry).await, four);
    registry
        .sql("update birth_registry set entity_code = 'mended', collection_name = 'c' where id in (5001, 5003, 5004);
              update named set label = 'mended' where id = 'b'")
        .await;
    done(&registry.url, &replay).await;
    assert_eq!(letters(&registry).await, Vec::<String>::new());
    assert_eq!(registry.text_if_any(of_named).await.as_deref(), Some("a,b,cé"));
    let births = "select count(*) from verify.handoffs where safe_payload ->> 'source_key' in ('5001', '5003', '5004')";
    assert_eq!(registry.number(births).await, 4, "two of the key that had two rows");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_read_is_a_finding_with_its_place_and_costs_no_other_row() {
    let registry = win1252("unsendable_keys").await;
    let daemon = registry.daemon("poll", &QUICK);
    registry.until_mode("poll").await;
    registry.sql(&format!("insert into named values ('a', 'x'), ({BYTE}, 'y'), ('c', 'z')")).await;
    let keys = "select string_agg(safe_payload ->> 'source_key', ',' order by safe_payload ->> 'source_key') from verify.handoffs
                 where event_subject_table = 'named'";
    until("the others are handed off", async || registry.text_if_any(keys).await.as_deref() == Some("a,c"))
        .await;
    let finding = "select count(*) from system_issues where coalesce_key = 'source_unreadable:named'
                    and resolved_at is null and detail ->> 'problem' like '%ctid (0,2)%'";
    until("and the finding says where", async || registry.number(finding).await == 1).await;
    registry.births("beside", 3).await;
    registry.until_all_handed_off().await;
    registry.sql("insert into named values ('d', 'w')").await;
    until("new rows too", async || registry.text_if_any(keys).await.as_deref() == Some("a,c,d")).await;
    registry.sql("update named set id = 'b' where label = 'y'").await;
    until("it is settled", async || registry.text_if_any(keys).await.as_deref() == Some("a,b,c,d")).await;
    until("nothing stands", async || registry.number(finding).await == 0).await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untranslatable_character_in_the_stream_delays_nobody_else() {
    let registry = win1252("unsendable_stream").await;
    let daemon = registry.capturing("stream", "1h").await;
    registry.births("before", 3).await;
    registry
        .sql(&format!(
            "insert into birth_registry (id, entity_code, collection_name)
             values (5001, {BYTE}, 'c'), (5002, 'café', 'c'), (5003, 'y', 'c');
             insert into named values ('a', 'x'), ('b', {BYTE}), ('cé', 'y'), ({BYTE}, 'z')"
        ))
        .await;
    let missing = || async { registry.verdict().await.missing };
    for n in 0..6 {
        let begun = Instant::now();
        registry.births(&format!("after{n}"), 3).await;
        until("births go on", async || missing().await == 0).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "births waited {:?}", begun.elapsed());
    }
    until("two rows are set aside", async || {
        letters(&registry).await == ["birth_registry unreadable_row", "named unreadable_row"]
    })
    .await;
    let address =
        "select canonical_address from verify.handoffs where safe_payload ->> 'source_key' = '5002'";
    assert_eq!(registry.text_if_any(address).await.as_deref(), Some("c:café"));
    let not_streamed = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' <> 'stream'
                         and event_subject_table = 'birth_registry'";
    assert_eq!(registry.number(not_streamed).await, 0, "{}", daemon.log());
    let keys = "select string_agg(safe_payload ->> 'source_key', ',' order by safe_payload ->> 'source_key')
                  from verify.handoffs where event_subject_table = 'named'";
    assert_eq!(registry.text_if_any(keys).await.as_deref(), Some("a,cé"));
    // The row without a key is left to the tables, which say so.
    registry.until_finding("source_unreadable").await;
    registry.until_stream_is_past_now().await;
    let lost =
        "select count(*) from system_issues where issue_kind in ('handoff_fallback', 'handoff_missed')";
    assert_eq!(registry.number(lost).await, 0, "{}", daemon.log());
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_that_one_source_fails_audits_the_others_first() {
    let db = migrated().await;
    db.sql(&format!("{CHANGE}; {BIRTH}")).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    // One table is gone, one definition cannot be read, and a signal of a third source was lost.
    db.sql("alter table birth_registry rename to births_away;
            update gov_worker_cursor set metadata = jsonb_set(metadata, '{id,type}', '\"none\"') where source_name = 'pivot_definitions';
            delete from event_pending where entity_table = 'registry_changelog'")
        .await;
    let missing = "select count(*) from gov_audit_name where source_name = 'registry_changelog'";
    for depth in ["--full", "--check"] {
        let audit = cli(&db.url, &["audit", depth, "--json"]).await;
        assert_eq!(audit.code, 2, "{}", audit.err);
        assert!(audit.err.contains("pivot_definitions"), "{}", audit.err);
        let told: serde_json::Value = serde_json::from_str(&audit.out).expect("json");
        assert_eq!(told["clean"], false);
        let named = told["sources"].as_array().expect("sources").iter().map(|s| s["source"].as_str());
        assert!(named.flatten().any(|name| name == "registry_changelog"), "{told}");
    }
    assert_eq!(db.number(missing).await, 1);
}
