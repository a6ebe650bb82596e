//! `gov-handoff selftest`: it passes here, leaves nothing behind however it ends, and can fail.

use std::collections::BTreeMap;
use std::time::Duration;

use gov_handoff::embedded::ClusterOptions;
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::{
    cli, connect, done, migrated, number, options, private_cluster, program, signal, texts,
};

/// Everything in the database that could be left behind: relations, schemas, publications, slots, and rows.
async fn footprint(client: &Client) -> BTreeMap<String, i64> {
    let names = "select format('%s %I.%I', c.relkind, n.nspname, c.relname) from pg_class c \
                   join pg_namespace n on n.oid = c.relnamespace where n.nspname !~ '^(pg_|information_schema)' \
                  union all select 'schema ' || nspname from pg_namespace where nspname !~ '^pg_(temp|toast_temp)' \
                  union all select 'publication ' || pubname from pg_publication \
                  union all select 'prepared ' || gid from pg_prepared_xacts \
                  union all select 'slot ' || slot_name from pg_replication_slots where database = current_database()";
    let mut found = BTreeMap::new();
    for name in texts(client, names).await {
        let rows = match name.strip_prefix("r ") {
            Some(table) => number(client, &format!("select count(*) from {table}")).await,
            None => 1,
        };
        found.insert(name, rows);
    }
    found
}

fn verdicts(json: &str) -> BTreeMap<(String, String), String> {
    let value: Value = serde_json::from_str(json).expect("json");
    let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let cases = value["cases"].as_array().expect("cases").iter();
    cases.map(|c| ((word(&c["mode"]), word(&c["case"])), word(&c["verdict"]))).collect()
}

fn prepared() -> ClusterOptions {
    let settings = vec![("max_prepared_transactions".to_owned(), "10".to_owned())];
    ClusterOptions { settings, ..options() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_passes_in_both_modes_and_nothing_is_left_behind() {
    let cluster = private_cluster(prepared()).await;
    cluster.create_database("operator", None).await.expect("a database");
    let url = cluster.url("operator");
    done(&url, &["migrate"]).await;
    let client = connect(&url).await;
    let before = footprint(&client).await;
    let ran = cli(&url, &["selftest", "--json", "--patience", "60"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let verdicts = verdicts(&ran.out);
    assert_eq!(verdicts.len(), 16);
    for ((mode, case), verdict) in &verdicts {
        let wanted = if mode == "poll" && case == "dropped_slot" { "skipped" } else { "passed" };
        assert_eq!(verdict, wanted, "{mode} {case}: {}", ran.out);
    }
    assert_eq!(footprint(&client).await, before);
    // Again, and to look at: only what was asked to be kept is there.
    assert_eq!(cli(&url, &["selftest", "--keep", "--patience", "60"]).await.code, 0);
    let kept = footprint(&client).await;
    assert!(kept.contains_key("r gov_handoff_selftest.births"), "{kept:?}");
    assert!(!kept.keys().any(|k| k.starts_with("slot ") || k.starts_with("publication ")), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_cannot_do_is_skipped_with_the_reason() {
    let cluster = private_cluster(ClusterOptions { wal_level: "replica".to_owned(), ..options() }).await;
    cluster.create_database("operator", None).await.expect("a database");
    let url = cluster.url("operator");
    done(&url, &["migrate"]).await;
    let ran = cli(&url, &["selftest", "--patience", "60"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("skipped: max_prepared_transactions is 0"), "{}", ran.out);
    assert!(ran.out.contains("skipped: wal_level is replica"), "{}", ran.out);
    assert!(ran.out.contains("late_commit              passed"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_privileges_is_told_what_it_lacks() {
    let db = migrated().await;
    let role = format!("plain_{}", db.name);
    db.client.batch_execute(&format!("create role {role} login")).await.expect("a role");
    let before = footprint(&db.client).await;
    let ran = cli(&db.url_as(&role), &["selftest"]).await;
    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains(&format!("{role} has no CREATE on database {}", db.name)), "{}", ran.err);
    db.client.batch_execute(&format!("grant create on database {} to {role}", db.name)).await.expect("grant");
    let ran = cli(&db.url_as(&role), &["selftest"]).await;
    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("grant it gov_handoff_worker and gov_handoff_operator"), "{}", ran.err);
    assert_eq!(footprint(&db.client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_handoff_fails_its_case_and_no_other() {
    let db = migrated().await;
    let thief = connect(&db.url).await;
    let theft = tokio::spawn(async move {
        loop {
            let steal = "delete from event_pending where canonical_address like 'selftest:null_key:%'";
            if thief.batch_execute(steal).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let ran = cli(&db.url, &["selftest", "--json", "--patience", "8"]).await;
    theft.abort();
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let verdicts = verdicts(&ran.out);
    let of = |mode: &str, case: &str| verdicts[&(mode.to_owned(), case.to_owned())].clone();
    assert_eq!(of("poll", "null_key"), "failed", "{}", ran.out);
    assert_eq!(of("poll", "late_commit"), "passed", "{}", ran.out);
    assert!(ran.out.contains("not handed off"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_selftest_clears_up() {
    let db = migrated().await;
    let before = footprint(&db.client).await;
    let mut child = program(&["selftest", "--database-url", &db.url], &[]).spawn().expect("it starts");
    db.until(
        "select exists (select from event_pending where event_type_hint = 'governance.handoff.selftest')",
    )
    .await;
    signal(child.id(), "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
    assert_eq!(footprint(&db.client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_selftest_leaves_no_daemon_and_the_next_one_clears_up() {
    let db = migrated().await;
    let before = footprint(&db.client).await;
    let mut child = program(&["selftest", "--database-url", &db.url], &[]).spawn().expect("it starts");
    let captured =
        "select exists (select from event_pending where event_type_hint = 'governance.handoff.selftest')";
    db.until(captured).await;
    child.kill().expect("kill");
    let _ = child.wait();
    let gone = "select not exists (select from pg_stat_activity where datname = current_database() \
                and application_name like 'gov-handoff%')";
    db.until(gone).await;
    let ran = cli(&db.url, &["selftest", "--patience", "60"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(footprint(&db.client).await, before);
}
