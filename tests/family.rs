//! The frame of the worker family: which workers run, pausing one, checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use gov_handoff::workers::FAMILY;
use serde_json::Value;

use crate::support::{Daemon, active, cli, cli_with, connect, done, migrated};

const QUICK: [(&str, &str); 2] = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_POLL_INTERVAL", "100ms")];
const SIGNALS: &str = "select count(*) from event_outbox where event_subject_table = 'birth_registry'";

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_worker_ticks_and_does_nothing_until_it_is_resumed_also_after_a_restart() {
    for mode in ["poll", "stream"] {
        let db = active().await;
        let mut daemon = Daemon::running(&db, mode, &QUICK).await;
        db.births("before", 3).await;
        db.until(&format!("select ({SIGNALS}) >= 3")).await;
        let paused = done(&db.url, &["pause", "gov_handoff_intake", "--reason", "month end"]).await;
        assert!(paused.contains("is paused"), "{paused}");
        db.until("select (metadata ->> 'paused')::boolean from queue_heartbeat where executor_name = 'gov_handoff_intake'").await;
        daemon.says("paused").await;
        let before = db.number(SIGNALS).await;
        db.births("during", 4).await;
        // Another holder of the lease rests as well.
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
        let mut daemon = Daemon::eager(&db.url, mode, &[]);
        daemon.says("paused").await;
        let ticks =
            "select ticks_total::bigint from queue_heartbeat where executor_name = 'gov_handoff_intake'";
        let ticked = db.number(ticks).await;
        db.until(&format!("select ({ticks}) > {ticked} + 3")).await;
        assert_eq!(db.number(SIGNALS).await, before, "nothing is handed off while it is paused");
        // Nobody takes it for silent, or for late: not even the watchdog that an operator runs.
        cli(&db.url, &["watch", "--once"]).await;
        let findings = "select coalesce(string_agg(coalesce_key, ' '), '') from system_issues \
                         where resolved_at is null and issue_kind ~ 'silent|lag'";
        assert_eq!(db.text(findings).await, "");
        let shown: Value =
            serde_json::from_str(&cli(&db.url, &["status", "--json"]).await.out).expect("json");
        let members = shown["workers"].as_array().expect("the workers");
        let member = members.iter().find(|m| m["worker"] == "gov_handoff_intake").expect("the intake");
        assert_eq!(
            (member["state"].as_str(), member["paused_because"].as_str()),
            (Some("paused"), Some("month end")),
            "{shown}"
        );
        done(&db.url, &["resume", "gov_handoff_intake"]).await;
        db.until("select count(distinct event_subject_ref) = 7 from event_outbox where event_subject_table = 'birth_registry'").await;
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_is_silent_and_a_paused_one_is_not() {
    let db = active().await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    daemon.signal("STOP");
    let silent = "select exists (select from fn_governance_watch(clock_timestamp() + interval '4 seconds') where verdict <> 'ok') \
                  and exists (select from system_issues where issue_kind = 'cursor_silent_gap' and resolved_at is null)";
    db.until(silent).await;
    daemon.signal("CONT");
    db.until("select count(*) = 0 from system_issues where issue_kind = 'cursor_silent_gap' and resolved_at is null").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pausing_twice_or_resuming_what_works_changes_nothing_and_unknown_workers_are_named() {
    let db = migrated().await;
    let json = |out: String| serde_json::from_str::<Value>(&out).expect("json");
    let change = async |command: &str| {
        json(done(&db.url, &[command, "gov_handoff_intake", "--json"]).await)["changed"].clone()
    };
    assert_eq!(change("resume").await, Value::Bool(false));
    assert_eq!(change("pause").await, Value::Bool(true));
    assert_eq!(change("pause").await, Value::Bool(false));
    let finding = "select count(*) from system_issues where coalesce_key = 'worker_paused:gov_handoff_intake' and resolved_at is null";
    assert_eq!(db.number(finding).await, 1, "nothing stops in silence");
    let once = cli(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(once.code, 1, "{}", once.err);
    assert!(
        once.err.contains("gov_handoff_intake is paused; `gov-handoff resume gov_handoff_intake`"),
        "{}",
        once.err
    );
    assert_eq!(change("resume").await, Value::Bool(true));
    assert_eq!(db.number(finding).await, 0);
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    for arguments in [&["pause", "gov_nobody"][..], &["run", "--once", "--workers", "gov_nobody"]] {
        let ran = cli(&db.url, arguments).await;
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("unknown worker gov_nobody; known are gov_"), "{}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_intake_leaves_a_checkpoint_of_its_run() {
    let db = active().await;
    let mut daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.births("b", 6).await;
    let summary = "select last_run_summary from gov_worker_cursor where source_name = 'birth_registry'";
    db.until(&format!("select ({summary}) ->> 'rows_seen' = '6'")).await;
    let summary: Value =
        serde_json::from_str(&db.text(&format!("select ({summary})::text")).await).expect("json");
    for field in
        ["batch_count", "dirty_marked", "dlq", "snapshot_ref", "ruleset_version", "started_at", "ended_at"]
    {
        assert!(!summary[field].is_null(), "{field} of {summary}");
    }
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    // Another run counts again.
    let _again = Daemon::running(&db, "poll", &QUICK).await;
    db.births("c", 2).await;
    db.until("select last_run_summary ->> 'rows_seen' = '2' from gov_worker_cursor where source_name = 'birth_registry'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_pauses_a_worker() {
    let db = migrated().await;
    db.sql("create role family_worker login; grant gov_handoff_worker to family_worker").await;
    let refused = cli_with(&db.url_as("family_worker"), &["pause", "gov_handoff_intake"], &[]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("permission denied"), "{}", refused.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_run_that_is_paused_while_it_works_ends_and_does_not_wait() {
    let db = active().await;
    db.births("b", 5).await;
    // It waits for a lock in its first batch, and is paused meanwhile.
    let holder = connect(&db.url).await;
    holder
        .batch_execute("begin; lock table gov_handoff.batches in access exclusive mode")
        .await
        .expect("a lock");
    let mut once = Daemon::start(&db.url, &["--once", "--mode", "poll"], &QUICK);
    db.until(
        "select exists (select from pg_stat_activity where application_name like 'gov-handoff writer%' and wait_event_type = 'Lock' \
         and datname = current_database())",
    )
    .await;
    done(&db.url, &["pause", "gov_handoff_intake"]).await;
    db.until("select (metadata ->> 'paused')::boolean from queue_heartbeat where executor_name = 'gov_handoff_intake'").await;
    holder.batch_execute("rollback").await.expect("released");
    assert_eq!(once.end("the single run").await.code(), Some(1), "{}", once.log());
    assert!(once.log().contains("gov_handoff_intake is paused"), "{}", once.log());
    assert_eq!(
        db.number("select count(*) from queue_heartbeat where lease_owner is not null").await,
        0,
        "{}",
        once.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pausing_and_resuming_a_stream_loses_nothing_blames_nobody_and_keeps_the_lease() {
    let db = active().await;
    let settings = [&QUICK[..], &[("GOV_HANDOFF_RECONCILE_INTERVAL", "100ms")]].concat();
    let mut daemon = Daemon::running(&db, "stream", &settings).await;
    let lease = "select lease_owner || (metadata ->> 'term') from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let held = db.text(lease).await;
    for round in 0..3 {
        done(&db.url, &["pause", "gov_handoff_intake"]).await;
        // Its stream has ended: nothing of this worker reads the slot.
        db.until("select not active from pg_replication_slots where database = current_database()").await;
        db.births(&format!("r{round}-"), 5).await;
        done(&db.url, &["resume", "gov_handoff_intake"]).await;
        daemon.captures(&db.url, "stream").await;
        // At once again, and under writing.
        done(&db.url, &["pause", "gov_handoff_intake"]).await;
        db.births(&format!("q{round}-"), 5).await;
        done(&db.url, &["resume", "gov_handoff_intake"]).await;
    }
    db.until("select count(distinct event_subject_ref) = 30 from event_outbox where event_subject_table = 'birth_registry'").await;
    assert_eq!(db.text(lease).await, held);
    let blamed = "select count(*) from system_issues where issue_kind in ('handoff_missed', 'handoff_fallback', 'slot_lost', 'row_replaced')";
    assert_eq!(db.number(blamed).await, 0, "{}", daemon.log());
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert_eq!(cli(&db.url, &["audit", "--full", "--check"]).await.code, 0);
}

#[test]
fn each_worker_has_a_row_where_workers_are_documented_and_nothing_else_has_one() {
    let family: BTreeSet<&str> = FAMILY.iter().map(|m| m.name).collect();
    for (page, text) in [
        ("docs/operating.md", include_str!("../docs/operating.md")),
        ("src/workers/mod.rs", include_str!("../src/workers/mod.rs")),
    ] {
        let rows = text.lines().filter_map(|line| {
            line.trim_start_matches("//! ").strip_prefix("| `gov_")?.split_once('`').map(|(name, _)| name)
        });
        let rows: Vec<_> = rows.map(|name| format!("gov_{name}")).collect();
        assert_eq!(rows.iter().map(String::as_str).collect::<BTreeSet<_>>(), family, "{page}");
        assert_eq!(rows.len(), family.len(), "{page} has a row twice");
    }
}

/// Each worker alone in a process of its own: stopped, it is silent, and so is no other; it goes on, and nothing is left of
/// it. A pause, however long, is no silence.
#[tokio::test(flavor = "multi_thread")]
async fn each_worker_is_missed_when_it_is_stopped_and_not_when_it_is_paused() {
    let db = active().await;
    for member in FAMILY {
        let name = member.name;
        let mut daemon = Daemon::eager(&db.url, "poll", &[("GOV_HANDOFF_WORKERS", name)]);
        db.until(&ticking(name)).await;
        daemon.signal("STOP");
        db.until(&format!(
            "select exists (select from fn_governance_watch() w where w.worker_name = '{name}' and w.verdict <> 'ok') \
                and exists (select from system_issues where coalesce_key = 'queue_worker_silent:{name}' and resolved_at is null)"
        ))
        .await;
        daemon.signal("CONT");
        let open = format!(
            "select count(*) from system_issues where coalesce_key ~ '_(silent|silent_gap):{name}$' and resolved_at is null"
        );
        db.until(&format!("select ({open}) = 0 from fn_governance_watch() limit 1")).await;
        done(&db.url, &["pause", name]).await;
        db.until(&format!(
            "select (metadata ->> 'paused')::boolean from queue_heartbeat where executor_name = '{name}'"
        ))
        .await;
        let ticks = format!("select ticks_total::bigint from queue_heartbeat where executor_name = '{name}'");
        let before = db.number(&ticks).await;
        // Four ticks are longer than the three that make a silence.
        db.until(&format!("select ({ticks}) > {before} + 4")).await;
        db.sql("select fn_governance_watch()").await;
        assert_eq!(db.number(&open).await, 0, "{name} is paused, not silent");
        done(&db.url, &["resume", name]).await;
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    }
}

/// The worker holds its lease and ticks.
fn ticking(name: &str) -> String {
    format!(
        "select exists (select from queue_heartbeat where executor_name = '{name}' and lease_owner is not null \
         and metadata ? 'cadence_ms' and last_tick_at > clock_timestamp() - interval '1 second')"
    )
}

/// How many workers of the family hold a lease in a process.
fn held_by(daemon: &Daemon) -> String {
    format!(
        "select count(*) from queue_heartbeat where executor_name like 'gov%' and lease_owner like '%-{}-%'",
        daemon.pid()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_share_the_workers_and_take_over_from_each_other() {
    let db = active().await;
    let rest =
        FAMILY.iter().map(|m| m.name).filter(|n| *n != "gov_handoff_intake").collect::<Vec<_>>().join(",");
    let mut first = Daemon::eager(&db.url, "poll", &[]);
    let mut second = Daemon::eager(&db.url, "poll", &[("GOV_HANDOFF_WORKERS", &rest)]);
    let all = i64::try_from(FAMILY.len()).expect("few");
    db.until(&format!("select ({}) = 1 and ({}) >= {all} - 1", held_by(&first), held_by(&second))).await;
    let mut third = Daemon::eager(&db.url, "poll", &[("GOV_HANDOFF_WORKERS", "all")]);
    // It has asked for every lease: standing by, it runs the watchdog.
    db.until("select count(*) > 0 from pg_stat_activity where datname = current_database()").await;
    assert_eq!(db.number(&held_by(&third)).await, 0, "every worker has its holder");
    second.kill();
    db.until(&format!("select ({}) >= {all} - 1", held_by(&third))).await;
    first.kill();
    db.births("b", 5).await;
    db.until(&format!("select ({}) >= {all} and ({SIGNALS}) >= 5", held_by(&third))).await;
    assert_eq!(third.sigterm().await, 0, "{}", third.log());
    db.until("select count(*) = 0 from queue_heartbeat where executor_name like 'gov\\_%' and lease_owner is not null").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_workers_together_take_few_connections_and_little_memory_and_end_in_time() {
    let db = active().await;
    let limit = documented_sessions();
    for mode in ["poll", "stream"] {
        let mut daemon = Daemon::eager(
            &db.url,
            mode,
            &[
                ("GOV_HANDOFF_WORKERS", "all"),
                ("GOV_HANDOFF_AUDIT_EVERY", "1s"),
                ("GOV_HANDOFF_CERTIFY_INTERVAL", "1s"),
            ],
        );
        daemon.captures(&db.url, mode).await;
        for member in FAMILY {
            db.until(&ticking(member.name)).await;
        }
        let before = db.number(SIGNALS).await;
        let mut most = 0;
        for burst in 0..10 {
            db.births(&format!("{mode}{burst}"), 500).await;
            let sessions = "select count(*) from pg_stat_activity where datname = current_database() \
                             and application_name like 'gov-handoff %'";
            for _ in 0..10 {
                most = most.max(db.number(sessions).await);
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        db.until(&format!("select ({SIGNALS}) >= {before} + 5000")).await;
        assert!(most <= limit, "{most} sessions, documented are {limit}");
        assert!(most > 2, "the sessions were not counted");
        assert!(daemon.peak_mib() <= 64, "{} MiB", daemon.peak_mib());
        let asked = std::time::Instant::now();
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
        assert!(asked.elapsed().as_secs() < 10, "it took {:?} to end", asked.elapsed());
        eprintln!("{mode}: {most} sessions of {limit}");
    }
}

/// What the documentation says that a process with all workers takes: the sum of its table.
fn documented_sessions() -> i64 {
    let text = include_str!("../docs/operating.md");
    let rows = text.lines().filter(|line| line.starts_with("| `gov_"));
    rows.map(|row| row.rsplit('|').nth(1).and_then(|n| n.trim().parse::<i64>().ok()).expect("a number")).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_doctor_know_every_worker_also_those_that_never_ran() {
    let db = migrated().await;
    let status = async || {
        let ran = cli(&db.url, &["status", "--json"]).await;
        serde_json::from_str::<Value>(&ran.out).expect("json")["workers"].clone()
    };
    let states = |workers: &Value| -> BTreeMap<String, String> {
        let of = |w: &Value| {
            (
                w["worker"].as_str().expect("a name").to_owned(),
                w["state"].as_str().expect("a state").to_owned(),
            )
        };
        workers.as_array().expect("a list").iter().map(of).collect()
    };
    let before = states(&status().await);
    assert_eq!(before.len(), FAMILY.len());
    assert!(before.values().all(|state| state == "never ran"), "{before:?}");
    let doctor = async || {
        let ran = cli_with(&db.url, &["doctor", "--json"], &[("GOV_HANDOFF_WORKERS", "all")]).await;
        let all = serde_json::from_str::<Value>(&ran.out).expect("json")["checks"].clone();
        let check = |name: &str| {
            all.as_array().expect("a list").iter().find(|c| c["check"] == name).cloned().expect("the check")
        };
        (check("workers"), check("connections"))
    };
    let (workers, room) = doctor().await;
    assert_eq!(
        (workers["verdict"].as_str(), room["verdict"].as_str()),
        (Some("warn"), Some("ok")),
        "{workers} {room}"
    );
    assert!(
        workers["found"].as_str().expect("text").contains("gov_periodic_full_audit never ran"),
        "{workers}"
    );
    let _daemon = Daemon::eager(&db.url, "poll", &[("GOV_HANDOFF_WORKERS", "all")]);
    for member in FAMILY {
        db.until(&ticking(member.name)).await;
    }
    let after = states(&status().await);
    assert!(FAMILY.iter().all(|m| after[m.name] == "running"), "{after:?}");
    assert_eq!(doctor().await.0["verdict"], "ok");
    done(&db.url, &["pause", "gov_periodic_full_audit"]).await;
    let (workers, _) = doctor().await;
    assert!(
        workers["found"].as_str().expect("text").contains("gov_periodic_full_audit paused by"),
        "{workers}"
    );
}
