//! Signal, not data: what stands in the content columns of a source is found nowhere else.

use crate::support::fixture::{ALL_KINDS, CANARY};
use crate::support::{Daemon, Database, cli, cli_with, done, migrated};

/// The address of a row that the outbox will refuse, so that errors have a row to talk about.
const POISON: &str = "insert into birth_registry (id, entity_code, collection_name, birth_payload)
    values (50, 'poison', 'laws', '\"canary-7f3a-in-the-content\"');
    insert into registry_changelog (id, entity_type, entity_code, action, old_value, new_value)
    values (50, 'species', 'poison', 'retire', 'canary-7f3a-in-the-content', 'canary-7f3a-in-the-content')";

/// Asks for everything, and for what libraries say by the longest target there is, which wins over any that is shorter.
const EVERYTHING: &str =
    "trace,tokio_postgres::query=debug,tokio_postgres::prepare=trace,pgwire_replication=trace,log=trace";

/// Every row of every table but the sources, as text.
async fn everything_written(db: &Database) -> String {
    let tables = "select tablename::text from pg_tables where schemaname = 'public' and tablename not in
                  ('birth_registry', 'registry_changelog', 'pivot_definitions', 'governance_ruleset')";
    let mut all = String::new();
    for table in db.texts(tables).await {
        // The outbox is a source as well: what other domains wrote into it is theirs.
        let filter = if table == "event_outbox" { "where event_domain = 'governance'" } else { "" };
        let rows =
            format!("select coalesce(string_agg(to_jsonb(t)::text, ''), '') from public.{table} t {filter}");
        all.push_str(&db.text(&rows).await);
    }
    all
}

/// What a subscriber of this publication would receive from a slot.
async fn received(db: &Database, slot: &str, publication: &str) -> Vec<u8> {
    let peek = "select data from pg_logical_slot_peek_binary_changes($1, null, null,
                'proto_version', '1', 'publication_names', $2)";
    let rows = db.client.query(peek, &[&slot, &publication]).await.expect("peek");
    rows.iter().flat_map(|row| row.get::<_, Vec<u8>>(0)).collect()
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

async fn contents_stay_behind(mode: &str) {
    let db = migrated().await;
    // Some are emitted and some are captured.
    done(&db.url, &["types", "activate", "object_born", "object_retired", "policy_changed"]).await;
    let refuse =
        "alter table event_outbox add constraint no_poison check (canonical_address not like '%poison%')";
    db.client.batch_execute(refuse).await.expect("a constraint to break");
    let mut daemon = Daemon::running(
        &db,
        mode,
        &[("GOV_HANDOFF_LOG", EVERYTHING), ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms")],
    )
    .await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    db.client.batch_execute(POISON).await.expect("the poison");
    db.until("select count(*) = 2 from iu_route_dead_letter").await;
    db.until(
        "select count(*) > 10 from event_pending where event_type_hint <> 'governance.handoff.certified'",
    )
    .await;
    // Errors of the other sort: a source that is not what it was.
    db.client
        .batch_execute("alter table birth_registry rename column entity_code to renamed")
        .await
        .expect("rename");
    db.client
        .batch_execute("insert into birth_registry (id, renamed, collection_name, birth_payload) values (60, 'late', 'laws', '\"canary-7f3a-in-the-content\"')")
        .await
        .expect("a birth");
    db.until("select count(*) > 0 from system_issues where issue_kind in
                       ('source_unreadable', 'source_column_missing', 'handoff_fallback', 'schema_drift') or detail::text like '%entity_code%'").await;
    assert_eq!(daemon.sigterm().await, 0);
    let (mut said, mut err) = (String::new(), String::new());
    for arguments in [
        &["replay", "--source", "birth_registry", "--from", "0", "--log", "trace"][..],
        &["sources", "check", "--log", "trace"],
        &["status", "--log", "trace"],
        &["run", "--once", "--mode", "poll", "--log", EVERYTHING],
        &["replay", "--source", "birth_registry", "--from", "0", "--log", EVERYTHING],
    ] {
        let ran = cli(&db.url, arguments).await;
        said.push_str(&ran.out);
        said.push_str(&ran.err);
        err.push_str(&ran.err);
    }
    let log = daemon.log();
    assert!(log.contains("row set aside"), "{log}");
    assert!(!log.contains(CANARY), "{mode}: in the log");
    for library in ["tokio_postgres", "pgwire_replication", "executing statement", "with parameters"] {
        assert!(!log.contains(library) && !said.contains(library), "{mode}: {library} speaks");
    }
    assert!(!said.contains(CANARY), "{mode}: in what commands said: {said}");
    assert!(!everything_written(&db).await.contains(CANARY), "{mode}: in a table");
    // Not even an address is worth a line: no row value is ever logged.
    for value in ["law-1", "behind-a-hole", "user:huyen"] {
        assert!(!log.contains(value) && !err.contains(value), "{mode}: {value} in the log");
    }
    assert!(db.number("select count(*) from event_outbox where event_domain = 'governance'").await > 0);
}

#[tokio::test]
async fn contents_are_found_in_no_table_no_log_and_no_error_while_polling() {
    contents_stay_behind("poll").await;
}

#[tokio::test]
async fn contents_are_found_in_no_table_no_log_and_no_error_while_streaming() {
    contents_stay_behind("stream").await;
}

#[tokio::test]
async fn contents_do_not_enter_the_replication_stream() {
    let db = migrated().await;
    let (ours, other) = (db.slot(), format!("{}_other", db.name));
    done(&db.url, &["replication", "setup"]).await;
    // To show that the search would find it: the same tables without column lists.
    let all = "create publication everything for table birth_registry, registry_changelog, pivot_definitions, governance_ruleset";
    db.client.batch_execute(all).await.expect("a publication of contents");
    let slot = "select from pg_create_logical_replication_slot($1, 'pgoutput')";
    db.client.query(slot, &[&other]).await.expect("another slot");
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    db.client.batch_execute("insert into registry_changelog (id, entity_type, source_system) values (60, 'echo-of-ours', 'gov-handoff')").await.expect("ours");
    let (signal, data) =
        (received(&db, &ours, "gov_handoff").await, received(&db, &other, "everything").await);
    assert!(holds(&data, CANARY) && holds(&data, "echo-of-ours"), "the search finds what is there");
    assert!(holds(&signal, "law-1") && holds(&signal, "by-year") && holds(&signal, "iu://1"));
    assert!(!holds(&signal, CANARY), "contents in the stream");
    assert!(!holds(&signal, "echo-of-ours"), "our own rows in the stream");
    assert!(!holds(&signal, "iu://3"), "an event that is no birth in the stream");
}

#[tokio::test]
async fn a_refused_setting_does_not_print_the_password() {
    let db = migrated().await;
    let url = db.url.replacen("postgres@", "postgres:s3cret-word@", 1);
    for arguments in [
        &["config"][..],
        &["status"],
        &["--log", "trace", "status"],
        &["run", "--once", "--mode", "nonsense"],
    ] {
        let ran = cli_with(&url, arguments, &[]).await;
        assert!(!ran.out.contains("s3cret-word") && !ran.err.contains("s3cret-word"), "{arguments:?}");
    }
}
