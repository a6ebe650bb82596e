//! Every kind of finding is raised by what it is about and resolved by its end; load slows us down, visibly, and
//! nothing is lost meanwhile. (Slots, misses and fallbacks are in `modes`, silence and leases in `watch`.)

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::{Daemon, Database, cli, connect, done, migrated};

const QUICK: [(&str, &str); 4] = [
    ("GOV_HANDOFF_LEASE_TTL", "1s"),
    ("GOV_HANDOFF_LAG_LIMIT", "1s"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "500ms"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms"),
];
const BIRTHS: &str = "insert into birth_registry (entity_code, collection_name) \
                      select 'e' || n, 'c' || n % 50 from generate_series(1, 200) n";

async fn sql(client: &Client, statement: &str) {
    client.batch_execute(statement).await.unwrap_or_else(|e| panic!("{statement}: {e:?}"));
}

async fn open(db: &Database, key: &str, severity: &str) {
    let condition = format!(
        "select exists (select from system_issues where coalesce_key = '{key}' and resolved_at is null and severity = '{severity}')"
    );
    db.until(&condition).await;
}

async fn resolved(db: &Database, key: &str) {
    let condition = format!(
        "select resolved_at is not null and resolution is not null from system_issues where coalesce_key = '{key}'"
    );
    db.until(&condition).await;
}

async fn all_handed_off(db: &Database) {
    db.until(
        "select (select count(*) from birth_registry) = (select count(*) from event_pending \
                       where entity_table = 'birth_registry' and entity_ref is not null)",
    )
    .await;
}

/// What `status` says of the pace; it must be asked while there is one.
async fn status_says(db: &Database, word: &str) {
    db.until(&format!("select metadata ->> 'pace_reason' like '%{word}%' from queue_heartbeat where executor_name = 'gov_handoff_intake'")).await;
    let status = cli(&db.url, &["status"]).await;
    assert!(status.out.contains("pace      ") && status.out.contains(word), "{}", status.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_a_warning_then_high_and_passes() {
    let db = migrated().await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.sql(BIRTHS).await;
    all_handed_off(&db).await;
    assert_eq!(db.number("select count(*) from system_issues where issue_kind like '%_lag'").await, 0);
    // What an activation does, held: nothing can be applied meanwhile.
    let held = connect(&db.url).await;
    sql(&held, "begin; lock table gov_handoff.batches in access exclusive mode").await;
    db.sql(BIRTHS).await;
    open(&db, "cursor_lag:gov_handoff_intake:birth_registry", "warning").await;
    open(&db, "handoff_lag:gov_handoff_intake", "warning").await;
    open(&db, "cursor_lag:gov_handoff_intake:birth_registry", "high").await;
    let lag = "select (metadata ->> 'lag_ms')::bigint from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    db.until(&format!("select ({lag}) >= 1000")).await;
    // The gate was waited for, and the server ended that: a smaller batch, which is said, and no slow read.
    let smaller = "handoff_throttled:gov_handoff_intake:birth_registry";
    open(&db, smaller, "warning").await;
    assert!(daemon.log().contains("a write was ended"), "{}", daemon.log());
    assert!(!daemon.log().contains("read exceeded"), "{}", daemon.log());
    sql(&held, "rollback").await;
    resolved(&db, smaller).await;
    resolved(&db, "cursor_lag:gov_handoff_intake:birth_registry").await;
    resolved(&db, "handoff_lag:gov_handoff_intake").await;
    all_handed_off(&db).await;
    // Quiet: long without a row, and no lag for that. Both in one moment: if silence counted as lag, the lag would be three
    // seconds whenever the last row is that old.
    let quiet = "select last_run_at < clock_timestamp() - interval '3 seconds' from gov_worker_cursor where source_name = 'birth_registry'";
    db.until(&format!("select ({quiet}) and ({lag}) < 1000")).await;
    let none = "select count(*) = 0 from system_issues where issue_kind like '%_lag' and resolved_at is null";
    db.until(none).await;
}

/// The stream is up and its batch does not get through: lag is measured by the log's end, and below a grain of 15 s it is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_does_not_get_through_lags() {
    let db = migrated().await;
    // With patience enough for the batch to wait: the stream goes on being one.
    let patient = [
        ("GOV_HANDOFF_LEASE_TTL", "60s"),
        ("GOV_HANDOFF_LAG_LIMIT", "1s"),
        ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"),
    ];
    let daemon = Daemon::running(&db, "stream", &patient).await;
    let locker = connect(&db.url).await;
    sql(&locker, "begin; lock table gov_candidate_state in share mode").await;
    db.sql(BIRTHS).await;
    let begun = std::time::Instant::now();
    let key = "handoff_lag:gov_handoff_intake";
    open(&db, key, "warning").await;
    assert!(begun.elapsed() >= Duration::from_secs(14), "after {:?}", begun.elapsed());
    let told = "select detail ->> 'mode' || ' ' || (detail ->> 'limit_seconds') from system_issues where coalesce_key = 'handoff_lag:gov_handoff_intake'";
    assert_eq!(db.text(told).await, "stream 15");
    sql(&locker, "rollback").await;
    resolved(&db, key).await;
    all_handed_off(&db).await;
    let by = "select count(*) from event_pending where entity_table = 'birth_registry' and entity_ref is not null and capture_payload ->> 'captured_by' <> 'stream'";
    assert_eq!(db.number(by).await, 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_that_would_go_back_is_held_and_said() {
    let db = migrated().await;
    db.sql(BIRTHS).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let watermark = "select last_watermark_ts || ' ' || last_watermark_id from gov_worker_cursor where source_name = 'birth_registry'";
    let before = db.text(watermark).await;
    let key = "cursor_watermark_regression:gov_handoff_intake:birth_registry";
    for (n, back) in [
        "last_watermark_ts = last_watermark_ts - interval '1 hour'",
        "last_watermark_id = '7'",
        "last_watermark_id = null",
        "last_watermark_ts = null",
        "last_watermark_ts = '-infinity', last_watermark_id = '1', events_seen = events_seen + 1",
    ]
    .iter()
    .enumerate()
    {
        db.sql(&format!("update gov_worker_cursor set {back} where source_name = 'birth_registry'")).await;
        assert_eq!(db.text(watermark).await, before, "{back}");
        let count = format!(
            "select occurrence_count from system_issues where coalesce_key = '{key}' and severity = 'high'"
        );
        assert_eq!(db.number(&count).await, i64::try_from(n).unwrap() + 1, "{back}");
    }
    assert_eq!(
        db.number("select events_seen from gov_worker_cursor where source_name = 'birth_registry'").await,
        201
    );
    db.sql("select fn_governance_watch()").await;
    let still =
        format!("select count(*) from system_issues where coalesce_key = '{key}' and resolved_at is null");
    assert_eq!(db.number(&still).await, 1, "it holds until the source has moved on");
    // A hole filled late is behind the watermark, and no regression.
    db.sql("insert into birth_registry (id, entity_code, collection_name, born_at) values (-9, 'late', 'c', '2001-01-01')").await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let count = format!("select occurrence_count from system_issues where coalesce_key = '{key}'");
    assert_eq!(db.number(&count).await, 5);
    assert_eq!(db.text(watermark).await, before);
    db.sql(BIRTHS).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_ne!(db.text(watermark).await, before);
    db.sql("select fn_governance_watch()").await;
    resolved(&db, key).await;
    // An audit's progress starts over by design.
    for _ in 0..2 {
        done(&db.url, &["audit", "--full"]).await;
    }
    assert_eq!(
        db.number("select count(*) from system_issues where issue_kind = 'cursor_watermark_regression'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unregistered_type_is_said_once_and_resolved_by_activation_or_by_hand() {
    let db = migrated().await;
    db.sql(BIRTHS).await;
    db.sql(
        "insert into registry_changelog (entity_type, entity_code, action) values ('nothing', 'x', 'known')",
    )
    .await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let born = "handoff_unregistered_type:governance.handoff.object_born";
    open(&db, born, "info").await;
    done(&db.url, &["types", "activate", "object_born"]).await;
    resolved(&db, born).await;
    let unmapped = "handoff_unregistered_type:governance.handoff.unmapped:registry_changelog";
    open(&db, unmapped, "info").await;
    assert_eq!(cli(&db.url, &["findings"]).await.code, 0, "nothing grave is open");
    assert!(done(&db.url, &["findings", "--resolve", unmapped]).await.contains("resolved"));
    resolved(&db, unmapped).await;
    assert_eq!(cli(&db.url, &["findings", "--resolve", unmapped]).await.code, 1, "it is not open any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_wait_for_locks_slow_us_down_until_they_do_not() {
    let db = migrated().await;
    let environment =
        [&QUICK[..], &[("GOV_HANDOFF_MAX_LOCK_WAITS", "2"), ("GOV_HANDOFF_LAG_LIMIT", "1m")]].concat();
    let _daemon = Daemon::running(&db, "poll", &environment).await;
    let holder = connect(&db.url).await;
    sql(&holder, "select pg_advisory_lock(1)").await;
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let url = db.url.clone();
            tokio::spawn(async move { sql(&connect(&url).await, "select pg_advisory_lock_shared(1)").await })
        })
        .collect();
    open(&db, "handoff_throttled:gov_handoff_intake", "warning").await;
    status_says(&db, "3 sessions wait for locks").await;
    // Certificates wait for the load to pass; handoffs do not.
    let certified = "select coalesce(max(certified_at)::text, '') from gov_worker_frontier where source_name = 'birth_registry'";
    let before = db.text(certified).await;
    db.sql(BIRTHS).await;
    all_handed_off(&db).await;
    db.until("select max(created_at) < clock_timestamp() - interval '1500 milliseconds' from event_pending where entity_ref is not null").await;
    assert_eq!(db.text(certified).await, before);
    sql(&holder, "select pg_advisory_unlock_all()").await;
    for session in waiting {
        session.await.expect("a waiter");
    }
    resolved(&db, "handoff_throttled:gov_handoff_intake").await;
    db.until(&format!("select ({certified}) > '{before}'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_take_long_slow_us_down() {
    let db = migrated().await;
    let environment = [
        &QUICK[..],
        &[
            ("GOV_HANDOFF_SLOW_READ", "300ms"),
            // A certifying pass waits for the lock to the end, and is no read of this kind.
            ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h"),
            ("GOV_HANDOFF_READ_TIMEOUT", "600ms"),
            ("GOV_HANDOFF_LAG_LIMIT", "1m"),
            ("GOV_HANDOFF_POLL_INTERVAL", "50ms"),
        ],
    ]
    .concat();
    let daemon = Daemon::running(&db, "poll", &environment).await;
    db.until("select exists (select from gov_worker_frontier where source_name = 'birth_registry')").await;
    // A lock on the table is the easiest way to make reads of it long, one after the other.
    let holder = connect(&db.url).await;
    sql(&holder, "begin; lock table birth_registry in access exclusive mode").await;
    open(&db, "handoff_throttled:gov_handoff_intake", "warning").await;
    daemon.says("read exceeded its time").await;
    sql(&holder, "commit").await;
    status_says(&db, "a read took").await;
    resolved(&db, "handoff_throttled:gov_handoff_intake").await;
    // The batch was halved each time, which was said as well; quick reads let it grow to what it was.
    let smaller = "handoff_throttled:gov_handoff_intake:birth_registry";
    resolved(&db, smaller).await;
    let told = format!("select detail ->> 'of' from system_issues where coalesce_key = '{smaller}'");
    assert_eq!(db.text(&told).await, "5000");
}

/// The others keep their turns: they are not certified each time somebody looks whether the broken one was mended.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_read_leaves_the_others_alone_and_is_found_again() {
    let db = migrated().await;
    db.sql("alter table birth_registry rename to births_away").await;
    let looked_at_often = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms")];
    let _daemon = Daemon::running(&db, "poll", &looked_at_often).await;
    let key = "source_unreadable:birth_registry";
    open(&db, key, "high").await;
    assert_eq!(cli(&db.url, &["findings"]).await.code, 1);
    let looks = format!("select occurrence_count >= 5 from system_issues where coalesce_key = '{key}'");
    db.until(&looks).await;
    let certified = "select count(*) from registry_changelog where action = 'certified' and entity_code = 'pivot_definitions'";
    assert_eq!(db.number(certified).await, 1);
    db.sql("alter table births_away rename to birth_registry").await;
    db.sql(BIRTHS).await;
    resolved(&db, key).await;
    all_handed_off(&db).await;
    assert_eq!(db.number(certified).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_the_off_peak_windows_nothing_is_certified_and_everything_is_handed_off() {
    let db = migrated().await;
    // Twelve hours from now, for an hour: not now.
    let far = db
        .text(
            "select to_char(now() at time zone 'UTC' + interval '12 hours', 'HH24:MI') || '-' || \
                to_char(now() at time zone 'UTC' + interval '13 hours', 'HH24:MI')",
        )
        .await;
    // Registering the source certified it up to its boundary.
    let certified = "select coalesce(max(certified_at)::text, '') from gov_worker_frontier where source_name = 'birth_registry'";
    let registered = db.text(certified).await;
    let environment = [&QUICK[..], &[("GOV_HANDOFF_OFF_PEAK", far.as_str())]].concat();
    let mut daemon = Daemon::running(&db, "poll", &environment).await;
    open(&db, "handoff_deferred:gov_handoff_intake", "info").await;
    status_says(&db, &format!("certifying waits for {far} UTC")).await;
    db.sql(BIRTHS).await;
    all_handed_off(&db).await;
    let ticks = "select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let seen = db.number(ticks).await;
    db.until(&format!("select ({ticks}) > {seen} + 6")).await;
    assert_eq!(db.text(certified).await, registered, "not once, though it was due many times over");
    daemon.sigterm().await;
    let _always = Daemon::running(&db, "poll", &QUICK).await;
    resolved(&db, "handoff_deferred:gov_handoff_intake").await;
    db.until(&format!("select ({certified}) <> '{registered}'")).await;
}

/// As each is raised; what is said of another source, or of its dead letters, stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_about_a_source_ends_when_it_is_removed() {
    let db = migrated().await;
    db.sql("insert into pivot_definitions (pivot_code) values ('p')").await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    // Leaves a row of the audit's own under the source's name.
    done(&db.url, &["audit", "--full"]).await;
    let ending = [
        "source_unreadable:pivot_definitions",
        "source_not_conserved:pivot_definitions",
        "handoff_missed:pivot_definitions",
        "untrusted_source:pivot_definitions:somebody",
        "audit_row_refused:pivot_definitions",
        "cursor_lag:gov_handoff_intake:pivot_definitions",
        "cursor_watermark_regression:gov_handoff_intake:pivot_definitions",
        "handoff_throttled:gov_handoff_intake:pivot_definitions",
    ];
    let staying = [
        "handoff_dlq:pivot_definitions",
        "handoff_throttled:gov_handoff_intake",
        "source_unreadable:birth_registry",
    ];
    for key in ending.iter().chain(&staying) {
        let mut detail = serde_json::Map::new();
        for source in ["pivot_definitions", "birth_registry"].into_iter().filter(|s| key.contains(s)) {
            detail.insert("source".to_owned(), source.into());
        }
        if key.contains("gov_handoff_intake") {
            detail.insert("worker".to_owned(), "gov_handoff_intake".into());
        }
        let (kind, detail) = (key.split(':').next().unwrap(), serde_json::Value::Object(detail));
        db.sql(&format!("select gov_handoff.gov_finding_raise('{kind}', '{key}', 'high', '{detail}')")).await;
    }
    db.sql("select fn_governance_watch()").await;
    let open = "select count(*) from system_issues where severity = 'high' and resolved_at is null";
    let all = i64::try_from(ending.len() + staying.len()).unwrap();
    // The watermark is where it should be, which ends that finding whatever becomes of the source.
    assert!(db.number(open).await >= all - 1);
    done(&db.url, &["sources", "remove", "pivot_definitions"]).await;
    for key in ending {
        resolved(&db, key).await;
    }
    for key in staying {
        self::open(&db, key, "high").await;
    }
}
