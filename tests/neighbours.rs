//! Each source is on its own: one that cannot be read is a finding and costs its neighbours nothing.

use crate::support::{Daemon, TestDb, cli_with, done, migrated, number, until};
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
async fn worker(db: &TestDb) -> String {
    let role = format!("neighbour_{}", db.name);
    db.sql(&format!("create role {role} login in role gov_handoff_worker")).await;
    db.sql(ROLES).await;
    db.url_as(&role)
}

async fn handed_off(db: &TestDb, table: &str) -> i64 {
    let signals =
        "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
    number(&db.client, &format!("{signals} and event_subject_table = '{table}'")).await
}

async fn until_handed_off(db: &TestDb, table: &str, signals: i64) -> Duration {
    let begun = Instant::now();
    while handed_off(db, table).await < signals {
        assert!(begun.elapsed() < Duration::from_secs(30), "{table} was not handed off");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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
    until(&db.client, &format!("select ({FINDING}) = 1")).await;
    for n in 2..8 {
        db.sql(CHANGE).await;
        let took = until_handed_off(&db, "registry_changelog", n).await;
        assert!(took < Duration::from_secs(2), "the neighbour waited {took:?}");
    }
    assert_eq!(handed_off(&db, "birth_registry").await, 1);
    assert_eq!(number(&db.client, FINDING).await, 1, "it stands as long as it is true");
    assert!(!daemon.log().contains("starting over"), "{}", daemon.log());
    db.sql("alter table birth_registry disable row level security").await;
    until_handed_off(&db, "birth_registry", 2).await;
    until(&db.client, &format!("select ({FINDING}) = 0")).await;
    assert_eq!(daemon.sigterm(), 0, "{}", daemon.log());
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
    assert_eq!(number(&db.client, FINDING).await, 1);
    db.sql("alter table birth_registry disable row level security").await;
    done(&url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(handed_off(&db, "birth_registry").await, 1);
    assert_eq!(number(&db.client, FINDING).await, 0);
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
