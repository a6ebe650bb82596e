//! Our own audit rows go to a table that we read: they never come back.

use crate::support::{Daemon, Database, done, migrated};

const OURS: &str = "select count(*) from registry_changelog where source_system = 'gov-handoff'";

async fn ticks(db: &Database) -> i64 {
    db.number("select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake'").await
}

async fn audit_rows_stay_out(mode: &str) {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let quick = [
        ("GOV_HANDOFF_AUDIT_INTERVAL", "200ms"),
        ("GOV_HANDOFF_LEASE_TTL", "1s"),
        ("GOV_HANDOFF_RECONCILE_INTERVAL", "100ms"),
    ];
    let mut daemon = Daemon::running(&db, mode, &quick).await;
    // Several intervals, each with a row of both sources, so that audit rows stand between changes.
    for round in 1..=4 {
        let write = format!(
            "insert into birth_registry (entity_code, collection_name) values ('b{round}', 'c');
             insert into registry_changelog (entity_type, entity_code, action) values ('species', 's{round}', 'retire')"
        );
        db.client.batch_execute(&write).await.expect("write");
        db.until(&format!("select ({OURS}) >= {}", 2 * round)).await;
    }
    // Nothing is written any more, so there is nothing to audit: ten ticks are three times the interval.
    let quiet = format!(
        "select (select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake') > {}",
        ticks(&db).await + 10
    );
    db.until(&quiet).await;
    let before = db.number(OURS).await;
    let quiet = format!(
        "select (select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake') > {}",
        ticks(&db).await + 10
    );
    db.until(&quiet).await;
    assert_eq!(db.number(OURS).await, before, "{mode}: audit rows call for audit rows");

    // Seen and accounted for: no range below the last id is open because of them.
    let closed = "select not exists (select from gov_worker_gap g join registry_changelog r on r.id between g.lo and g.hi
                   where g.source_name = 'registry_changelog')";
    db.until(closed).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let signals =
        "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
    assert_eq!(db.number(signals).await, 8, "{mode}: four births, four changes");
    assert_eq!(
        db.number(
            "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'"
        )
        .await,
        0,
        "{mode}"
    );
    let back = "select count(*) from event_outbox o join registry_changelog r on r.id::text = o.safe_payload ->> 'source_key'
                 where o.safe_payload ->> 'source' = 'registry_changelog' and r.source_system = 'gov-handoff'";
    assert_eq!(db.number(back).await, 0, "{mode}");
    // Not by replay either.
    let replay = done(&db.url, &["replay", "--source", "registry_changelog", "--from", "0", "--json"]).await;
    assert!(replay.contains("\"emitted\": 0") && replay.contains("\"missing\": 0"), "{replay}");
}

#[tokio::test]
async fn our_own_audit_rows_never_come_back_while_polling() {
    audit_rows_stay_out("poll").await;
}

#[tokio::test]
async fn our_own_audit_rows_never_come_back_while_streaming() {
    audit_rows_stay_out("stream").await;
}

#[tokio::test]
async fn a_changelog_that_refuses_our_rows_stops_neither_dead_letters_nor_handoffs() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let refuse = "alter table registry_changelog add check (entity_type <> 'governance_handoff');
                  alter table event_outbox add check (canonical_address <> 'c:poison');
                  insert into birth_registry (entity_code, collection_name) values ('poison', 'c'), ('fine', 'c')";
    db.client.batch_execute(refuse).await.expect("two constraints, two births");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number("select count(*) from iu_route_dead_letter").await, 1);
    assert_eq!(
        db.number(
            "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'"
        )
        .await,
        1
    );
    assert_eq!(
        db.number(
            "select count(*) from system_issues where coalesce_key = 'audit_row_refused:birth_registry'"
        )
        .await,
        1
    );
}
