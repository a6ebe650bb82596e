//! Our own audit rows go to a table that we read: they never come back.

use crate::support::{Daemon, TestDb, cli, done, migrated, number, text, until};

const OURS: &str = "select count(*) from registry_changelog where source_system = 'gov-handoff'";

async fn ticks(db: &TestDb) -> i64 {
    number(&db.client, "select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake'")
        .await
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
        until(&db.client, &format!("select ({OURS}) >= {}", 2 * round)).await;
    }
    // Nothing is written any more, so there is nothing to audit: ten ticks are three times the interval.
    let quiet = format!(
        "select (select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake') > {}",
        ticks(&db).await + 10
    );
    until(&db.client, &quiet).await;
    let before = number(&db.client, OURS).await;
    let quiet = format!(
        "select (select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake') > {}",
        ticks(&db).await + 10
    );
    until(&db.client, &quiet).await;
    assert_eq!(number(&db.client, OURS).await, before, "{mode}: audit rows call for audit rows");

    // Seen and accounted for: no range below the last id is open because of them.
    let closed = "select not exists (select from gov_worker_gap g join registry_changelog r on r.id between g.lo and g.hi
                   where g.source_name = 'registry_changelog')";
    until(&db.client, closed).await;
    assert_eq!(daemon.sigterm(), 0, "{}", daemon.log());
    let signals =
        "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
    assert_eq!(number(&db.client, signals).await, 8, "{mode}: four births, four changes");
    assert_eq!(
        number(
            &db.client,
            "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'"
        )
        .await,
        0,
        "{mode}"
    );
    let back = "select count(*) from event_outbox o join registry_changelog r on r.id::text = o.safe_payload ->> 'source_key'
                 where o.safe_payload ->> 'source' = 'registry_changelog' and r.source_system = 'gov-handoff'";
    assert_eq!(number(&db.client, back).await, 0, "{mode}");
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
    assert_eq!(number(&db.client, "select count(*) from iu_route_dead_letter").await, 1);
    assert_eq!(
        number(
            &db.client,
            "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'"
        )
        .await,
        1
    );
    assert_eq!(
        number(
            &db.client,
            "select count(*) from system_issues where coalesce_key = 'audit_row_refused:birth_registry'"
        )
        .await,
        1
    );
}

/// Rows of others that look like ours in one way or the other.
const LOOKALIKES: &str = "insert into registry_changelog (entity_type, entity_code, action, source_system, \"timestamp\")
    values ('governance_handoff', 'theirs', 'note', 'elsewhere', '2001-01-01'), ('species', 'theirs', 'note', 'gov-handoff', '2001-01-01')";

#[tokio::test(flavor = "multi_thread")]
async fn old_audit_rows_of_ours_are_removed_and_nobody_elses_and_nothing_seems_missing() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client.batch_execute(LOOKALIKES).await.expect("rows of others");
    let quick = [
        ("GOV_HANDOFF_AUDIT_INTERVAL", "100ms"),
        ("GOV_HANDOFF_LEASE_TTL", "1s"),
        ("GOV_HANDOFF_CERTIFY_INTERVAL", "100ms"),
    ];
    let births = "insert into birth_registry (entity_code, collection_name) select 'b' || g, 'c' from generate_series(1, 5) g";
    let mut daemon = Daemon::running(&db, "poll", &quick).await;
    for round in 1..=6 {
        db.client.batch_execute(births).await.expect("births");
        until(&db.client, &format!("select ({OURS}) >= {}", 2 * round)).await;
    }
    assert_eq!(daemon.sigterm(), 0, "{}", daemon.log());
    // Two are left to stay: one that the reader has yet to pass, and the last of the table.
    let unread = "insert into gov_worker_gap (worker_name, source_name, lo, hi, hot)
                  select 'gov_handoff_intake', 'registry_changelog', min(id), min(id), false from registry_changelog r
                   where source_system = 'gov-handoff' and entity_type = 'governance_handoff'
                     and not exists (select from gov_worker_gap g where g.source_name = 'registry_changelog' and r.id between g.lo and g.hi)";
    db.client.batch_execute(unread).await.expect("a range");
    let open = "exists (select from gov_worker_gap g where g.source_name = 'registry_changelog' and r.id between g.lo and g.hi)";
    let ours = "r.source_system = 'gov-handoff' and r.entity_type = 'governance_handoff'";
    let may_go = format!(
        "select count(*) from registry_changelog r where {ours} and not {open} and r.id < (select max(id) from registry_changelog)"
    );
    let others = format!(
        "select coalesce(md5(string_agg(r::text, ',' order by id)), '') from registry_changelog r where not ({ours})"
    );
    let (may_go, before, kept) =
        (number(&db.client, &may_go).await, number(&db.client, OURS).await, text(&db.client, &others).await);
    assert!(may_go > 5 && may_go < before, "{may_go} of {before}");

    // Not before their time.
    let young = done(&db.url, &["retire", "--before", "2001-01-01"]).await;
    assert!(!young.contains("audit rows"), "{young}");
    let said = done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert!(said.contains(&format!("{may_go} old audit rows of ours removed")), "{said}");
    assert_eq!(number(&db.client, OURS).await, before - may_go);
    assert_eq!(text(&db.client, &others).await, kept, "what others wrote");

    db.client.batch_execute(births).await.expect("births");
    let now = text(&db.client, "select clock_timestamp()::text").await;
    let mut daemon = Daemon::running(&db, "poll", &quick).await;
    let certified = format!(
        "select count(*) = 2 from gov_worker_cursor where source_name in ('birth_registry', 'registry_changelog') \
         and (last_run_summary #>> '{{certificate,taken_at}}')::timestamptz > '{now}'"
    );
    until(&db.client, &certified).await;
    assert_eq!(daemon.sigterm(), 0, "{}", daemon.log());
    let found = "select count(*) from system_issues where issue_kind in ('source_not_conserved', 'source_not_append_only')";
    assert_eq!(number(&db.client, found).await, 0, "rows that we removed ourselves are not missed");
    let audit = cli(&db.url, &["audit", "--full", "--check"]).await;
    assert_eq!(audit.code, 0, "{}{}", audit.out, audit.err);
}

#[tokio::test]
async fn a_changelog_that_lets_nothing_go_keeps_our_audit_rows_and_it_is_said() {
    let db = migrated().await;
    db.client
        .batch_execute(
            "create function theirs() returns trigger language plpgsql as $$ begin raise 'append-only'; end $$;
             create trigger theirs before delete on registry_changelog execute function theirs();
             insert into birth_registry (entity_code, collection_name) values ('a', 'c')",
        )
        .await
        .expect("a rule of theirs");
    for _ in 0..2 {
        done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    }
    let before = number(&db.client, OURS).await;
    let said = done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert!(!said.contains("audit rows"), "{said}");
    assert_eq!(number(&db.client, OURS).await, before);
    assert!(done(&db.url, &["findings"]).await.contains("audit_row_refused:retention"));
}
