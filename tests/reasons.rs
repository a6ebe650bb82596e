//! Why a handoff was missing when the reconciler found it, as its certificates say, on a real server. The stream is blamed
//! only for what it should have had: see also `modes`, where it is.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio_postgres::Client;

use crate::support::{Daemon, Database, PATIENCE, connect, done, migrated, until_true, within};

pub const EAGER: [(&str, &str); 4] = [
    ("GOV_HANDOFF_STREAM_RETRY", "300ms"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "300ms"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms"),
    ("GOV_HANDOFF_LEASE_TTL", "2s"),
];

/// Looks behind the stream only when something happens to it.
const PATIENT: [(&str, &str); 4] = [
    ("GOV_HANDOFF_STREAM_RETRY", "300ms"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "6s"),
    ("GOV_HANDOFF_LEASE_TTL", "2s"),
];

pub async fn sql(client: &Client, statement: &str) {
    client.batch_execute(statement).await.unwrap_or_else(|e| panic!("{statement}: {e:?}"));
}

pub fn birth(code: &str, born: &str) -> String {
    format!(
        "insert into birth_registry (entity_code, collection_name, born_at) values ('{code}', 'laws', {born})"
    )
}

pub async fn handed_off(client: &Client, code: &str) {
    let condition = format!(
        "select exists (select from event_pending where entity_table = 'birth_registry' \
             and canonical_address = 'laws:{code}')"
    );
    until_true(client, &condition).await;
}

/// Every repair of births that certificates have told of, by reason.
pub async fn repaired(db: &Database) -> BTreeMap<String, i64> {
    let report = done(&db.url, &["certificates", "--history", "10000", "--json"]).await;
    let report: Value = serde_json::from_str(&report).expect("json");
    let mut sums = BTreeMap::new();
    let history = report["history"].as_array().expect("history").iter();
    for certificate in history.filter(|c| c["source"] == "birth_registry") {
        for (reason, n) in certificate["repaired"].as_object().expect("repaired") {
            *sums.entry(reason.clone()).or_default() += n.as_i64().expect("a number");
        }
    }
    sums
}

/// Waits until the certificates tell of exactly these repairs.
async fn until_repaired(db: &Database, wanted: &[(&str, i64)]) {
    let wanted: BTreeMap<_, _> = wanted.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect();
    within(PATIENCE, "the certificates tell of these repairs", async || {
        let told = repaired(db).await;
        if told == wanted { Ok(()) } else { Err(format!("{told:?}, not {wanted:?}")) }
    })
    .await;
}

async fn nobody_is_blamed(db: &Database) {
    let missed = "select count(*) from system_issues where issue_kind = 'handoff_missed'";
    assert_eq!(db.number(missed).await, 0);
}

/// A daemon that is to stream and nothing else, whose role can be stripped of the right to.
pub async fn streaming(settings: &[(&str, &str)]) -> (Database, Daemon, String) {
    let db = migrated().await;
    let role = format!("why_{}", db.name);
    db.sql(&format!("create role {role} login replication in role gov_handoff_worker")).await;
    done(&db.url, &["replication", "setup"]).await;
    // Their history is kept where somebody asks for it.
    done(&db.url, &["types", "activate", "certified"]).await;
    let url = db.url_as(&role);
    let environment = [settings, &[("GOV_HANDOFF_REPLICATION_URL", url.as_str())]].concat();
    let daemon = Daemon::start(&db.url, &["--mode", "stream"], &environment);
    daemon.captures(&db.url, "stream").await;
    db.sql(&birth("first", "now()")).await;
    handed_off(&db.client, "first").await;
    (db, daemon, role)
}

pub async fn take_the_stream_away(db: &Database, daemon: &Daemon, role: &str) {
    // By itself and first: in one transaction with what follows, a daemon that is quick to come back would not see it yet.
    db.sql(&format!("alter role {role} noreplication")).await;
    let end = format!(
        "do $$ begin perform pg_terminate_backend(active_pid, 5000) \
         from pg_replication_slots where slot_name = '{}' and active_pid is not null; end $$",
        db.slot()
    );
    db.sql(&end).await;
    daemon.captures(&db.url, "poll").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_late_back_dated_or_without_a_time_when_the_stream_is_away() {
    let (db, daemon, role) = streaming(&EAGER).await;
    take_the_stream_away(&db, &daemon, &role).await;
    // It takes its key and its time, and commits behind another.
    let late = connect(&db.url).await;
    sql(&late, &format!("begin; {}", birth("late", "now()"))).await;
    db.sql(&birth("quick", "now()")).await;
    handed_off(&db.client, "quick").await;
    sql(&late, "commit").await;
    handed_off(&db.client, "late").await;
    db.sql(&birth("dated", "now() - interval '1 year'")).await;
    db.sql(&birth("timeless", "null")).await;
    handed_off(&db.client, "dated").await;
    handed_off(&db.client, "timeless").await;
    let wanted = [("back_dated", 1), ("late_commit", 1), ("not_yet_read", 1), ("null_key", 1)];
    until_repaired(&db, &wanted).await;
    // The slot is still there and goes on: what the tables had meanwhile is absorbed, not told again.
    db.sql(&format!("alter role {role} replication")).await;
    daemon.captures(&db.url, "stream").await;
    db.sql(&birth("after", "now()")).await;
    handed_off(&db.client, "after").await;
    until_repaired(&db, &wanted).await;
    nobody_is_blamed(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_slot_left_behind_is_told_as_its_gap() {
    let (db, daemon, role) = streaming(&PATIENT).await;
    // Right after a certificate, so that the next one does not come before the slot is lost and had again.
    let taken = "select coalesce(max(last_run_summary #>> '{certificate,taken_at}'), '') from gov_worker_cursor \
                 where source_name = 'birth_registry'";
    let before = db.text(taken).await;
    db.until(&format!("select ({taken}) > '{before}'")).await;
    take_the_stream_away(&db, &daemon, &role).await;
    // The pass that the change calls for is over, so that what is written now is found by the next.
    let resting = "select count(*) = 1 from pg_stat_activity where datname = current_database() and state = 'idle' \
                   and application_name like 'gov-handoff reader %' and state_change < clock_timestamp() - interval '300 ms'";
    db.until(resting).await;
    for code in ["lost-1", "lost-2"] {
        db.sql(&birth(code, "now() - interval '1 year'")).await;
    }
    let back = format!("select pg_drop_replication_slot('{}'); alter role {role} replication", db.slot());
    db.sql(&back).await;
    daemon.captures(&db.url, "stream").await;
    handed_off(&db.client, "lost-2").await;
    db.sql(&birth("after", "now()")).await;
    handed_off(&db.client, "after").await;
    until_repaired(&db, &[("gap_after_slot_loss", 2)]).await;
    let gap = "select count(*) from system_issues where issue_kind = 'slot_lost' \
               and detail ->> 'reason' like '%ahead of what we have%'";
    assert_eq!(db.number(gap).await, 1);
    nobody_is_blamed(&db).await;
}

/// A commit that nobody waits for is seen before its log is written, so before any stream can bring it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_not_waited_for_is_no_miss_of_the_stream() {
    let often = [
        ("GOV_HANDOFF_STREAM_RETRY", "300ms"),
        ("GOV_HANDOFF_RECONCILE_INTERVAL", "20ms"),
        ("GOV_HANDOFF_CERTIFY_INTERVAL", "100ms"),
    ];
    let (db, daemon, _) = streaming(&often).await;
    db.sql("set synchronous_commit = off").await;
    for n in 0..300 {
        db.sql(&birth(&format!("async{n}"), "now()")).await;
        // A pace, not a wait: passes over the tables fall between the births.
        tokio::time::sleep(std::time::Duration::from_millis(7)).await;
    }
    handed_off(&db.client, "async299").await;
    // Blame would come with a certificate; one that began after the last birth has been taken.
    db.until_certified_again("birth_registry").await;
    nobody_is_blamed(&db).await;
    drop(daemon);
}

/// Inserts are published and nothing else: what a change or another rule makes due later was never the stream's to bring.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_due_when_a_row_is_changed_is_no_miss_of_the_stream() {
    let often = [("GOV_HANDOFF_STREAM_RETRY", "300ms"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")];
    let (db, daemon, _) = streaming(&often).await;
    db.sql("update birth_registry set status = 'registered' where entity_code = 'first'").await;
    let registered = "select exists (select from event_pending where entity_table = 'birth_registry' \
                          and event_type_hint = 'governance.handoff.object_registered')";
    db.until(registered).await;
    // Blame would come with a certificate.
    db.until_certified_again("birth_registry").await;
    nobody_is_blamed(&db).await;
    drop(daemon);
}
