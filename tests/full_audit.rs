//! The periodic full audit: on its schedule, resumable at any kill, in turns with the command; candidates past their time.

use std::time::Duration;

use serde_json::Value;

use crate::proof::{COUNT_FROM_ONE, SIGNALS, births, json, once};
use crate::support::{Daemon, Database, active, cli, cli_with, done};

const WORKER: &str = "gov_periodic_full_audit";
/// The audit of births that ended last, and what it found.
const LAST: &str =
    "select coalesce(ended_at::text, '') from v_gov_full_audit where source_name = 'birth_registry'";
const DISCREPANCY: &str = "select count(*) from system_issues where coalesce_key = 'audit_discrepancy:birth_registry' and resolved_at is null";

/// Births that are handed off, and nothing of them still on its way.
async fn registry(n: u32) -> Database {
    let db = active().await;
    db.sql(COUNT_FROM_ONE).await;
    db.sql(&births(n)).await;
    once(&db.url).await;
    db.sql("insert into gov_worker_frontier (worker_name, source_name, frontier, system_identifier) \
         select 'gov_handoff_intake', 'birth_registry', pg_snapshot_xmax(pg_current_snapshot()), system_identifier::text \
           from pg_control_system() \
         on conflict (worker_name, source_name) do update set frontier = excluded.frontier")
        .await;
    db
}

/// The worker alone, with this schedule.
fn auditing(db: &Database, every: &str, more: &[(&str, &str)]) -> Daemon {
    let settings = [&[("GOV_HANDOFF_WORKERS", WORKER), ("GOV_HANDOFF_AUDIT_EVERY", every)], more].concat();
    Daemon::eager(&db.url, "poll", &settings)
}

/// As if all audits and registrations were this long ago.
async fn pass(db: &Database, time: &str) {
    db.sql(&format!(
        "update gov_worker_cursor set created_at = created_at - interval '{time}', last_run_summary = case \
             when last_run_summary ? 'full_audit' then jsonb_set(last_run_summary, '{{full_audit,started_at}}', \
                 to_jsonb(((last_run_summary #>> '{{full_audit,started_at}}')::timestamptz - interval '{time}')::text)) \
             else last_run_summary end"
    ))
    .await;
}

async fn lose(db: &Database, n: i64) {
    let lost = format!(
        "with gone as (delete from event_outbox where id in (select id from event_outbox where {SIGNALS} \
         and event_subject_table = 'birth_registry' limit {n}) returning 1) select count(*) from gone"
    );
    assert_eq!(db.number(&lost).await, n);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_audited_when_it_is_due_repaired_reported_and_then_left_alone() {
    let db = registry(1_000).await;
    let all = format!(
        "select count(*) from event_outbox where {SIGNALS} and event_subject_table = 'birth_registry'"
    );
    let whole = db.number(&all).await;
    lose(&db, 7).await;
    let mut daemon = auditing(&db, "24h", &[]);
    // Registered a moment ago, no source is due. The walk through the candidates has begun by now.
    db.until(&format!("select exists (select from gov_worker_cursor where worker_name = '{WORKER}' and last_run_summary ? 'walk')")).await;
    assert_eq!(db.text(LAST).await, "");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    pass(&db, "25 hours").await;
    let mut daemon = auditing(&db, "24h", &[]);
    db.until("select bool_and(ended_at is not null) from v_gov_full_audit").await;
    assert_eq!(db.number(&all).await, whole, "what was missing is handed off");
    assert_eq!(db.number(DISCREPANCY).await, 1);
    let found = "select missing::text || '/' || repaired || '/' || rows_checked from v_gov_full_audit where source_name = 'birth_registry'";
    let missing: i64 = db.text(found).await.split('/').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((1..=7).contains(&missing), "rows, of which one may have two signals: {missing}");
    let status: Value = json(&cli(&db.url, &["status", "--json"]).await.out);
    let audit = status["audits"]
        .as_array()
        .expect("audits")
        .iter()
        .find(|a| a["source"] == "birth_registry")
        .expect("births")
        .clone();
    assert!(
        audit["started_at"].is_string() && audit["due_at"].is_string() && audit["missing"] == missing,
        "{audit}"
    );
    // The checkpoint of every worker, and the totals.
    let rows = format!(
        "select events_seen from gov_worker_cursor where worker_name = '{WORKER}' and source_name = 'birth_registry'"
    );
    assert_eq!(db.number(&rows).await, 1_000);
    let summary = format!(
        "select (last_run_summary -> 'ended_at' <> 'null' and last_run_summary ? 'snapshot_ref' and \
        last_run_summary ->> 'rows_seen' = '1000')::text from gov_worker_cursor where worker_name = '{WORKER}' and source_name = 'birth_registry'"
    );
    assert_eq!(db.text(&summary).await, "true");
    // A day later it finds nothing, and says so.
    let last = db.text(LAST).await;
    pass(&db, "25 hours").await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let _daemon = auditing(&db, "24h", &[]);
    db.until(&format!("select ({LAST}) <> '{last}' and ({DISCREPANCY}) = 0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_that_is_killed_anywhere_goes_on_and_counts_nothing_twice() {
    let db = registry(12_000).await;
    lose(&db, 5).await;
    let missing = format!(
        "select count(distinct r.id) from birth_registry r where not exists (select from event_outbox o where {SIGNALS} \
         and o.event_subject_table = 'birth_registry' and o.safe_payload ->> 'source_key' = r.id::text \
         and o.event_type = 'governance.handoff.object_born')"
    );
    let (born, lost) = (db.number(&missing).await, 5);
    pass(&db, "25 hours").await;
    for place in [
        "audit_after_keep:1",
        "audit_before_repair:1",
        "audit_before_keep:2",
        "audit_after_keep:3",
        "audit_before_finish:1",
    ] {
        let mut daemon = auditing(&db, "24h", &[("GOV_HANDOFF_FAILPOINT", place)]);
        daemon.end(place).await;
        assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    }
    let mut daemon = auditing(&db, "24h", &[]);
    db.until("select bool_and(ended_at is not null) from v_gov_full_audit").await;
    let counted = "select rows_checked from v_gov_full_audit where source_name = 'birth_registry'";
    assert_eq!(db.number(counted).await, 12_000);
    assert_eq!(db.number(&missing).await, 0, "of {born} born rows without their signal");
    let repaired =
        db.number("select repaired from v_gov_full_audit where source_name = 'birth_registry'").await;
    assert!((born.max(1)..=lost).contains(&repaired), "{repaired} of {lost}");
    let rows = format!(
        "select events_seen from gov_worker_cursor where worker_name = '{WORKER}' and source_name = 'birth_registry'"
    );
    assert_eq!(db.number(&rows).await, 12_000, "no chunk is counted twice");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_and_the_worker_never_audit_at_once_and_neither_keeps_the_other_out() {
    let db = registry(1_000).await;
    // The worker runs and nothing is due: the command need not wait for it.
    let mut daemon = auditing(&db, "24h", &[]);
    db.until(&format!("select exists (select from gov_worker_cursor where worker_name = '{WORKER}' and last_run_summary ? 'walk')")).await;
    let begun = std::time::Instant::now();
    done(&db.url, &["audit", "--full"]).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    // The command audited everything: the schedule counts from there.
    db.until("select bool_and(ended_at is not null) from v_gov_full_audit").await;
    pass(&db, "25 hours").await;
    let last = db.text(LAST).await;
    // A command holds the lease of audits: the worker, for which sources are due, leaves it alone.
    let free = "select count(*) from queue_heartbeat where executor_name = 'gov_handoff_audit' and lease_owner is not null";
    assert_eq!(db.number(free).await, 0);
    db.sql("update queue_heartbeat set lease_owner = 'somebody', last_tick_at = clock_timestamp() + interval '900 milliseconds', \
            metadata = metadata || jsonb_build_object('session_pid', pg_backend_pid(), 'ttl_ms', 600000, \
                'session_role', (select usesysid::bigint from pg_stat_activity where pid = pg_backend_pid())) \
            where executor_name = 'gov_handoff_audit'")
        .await;
    let _daemon = auditing(&db, "24h", &[]);
    let ticks = format!(
        "select ticks_total::bigint from queue_heartbeat where executor_name = '{WORKER}' and lease_owner is not null"
    );
    db.until(&format!("select coalesce(({ticks}), 0) > 0")).await;
    let before = db.number(&ticks).await;
    db.until(&format!("select ({ticks}) > {before} + 6")).await;
    assert_eq!(db.text(LAST).await, last, "it audited under the lease of another");
    db.sql("update queue_heartbeat set lease_owner = null where executor_name = 'gov_handoff_audit'").await;
    db.until(&format!("select ({LAST}) <> '{last}'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_keep_to_their_windows_and_zero_means_never() {
    let db = registry(100).await;
    pass(&db, "25 hours").await;
    let hour = db.number("select extract(hour from clock_timestamp() at time zone 'UTC')::bigint").await;
    let window = |from: i64| format!("{:02}:00-{:02}:00", (hour + from) % 24, (hour + from + 2) % 24);
    let elsewhere = window(3);
    for (every, windows) in [("24h", elsewhere.as_str()), ("0s", "")] {
        let mut daemon = auditing(&db, every, &[("GOV_HANDOFF_OFF_PEAK", windows)]);
        let ticks =
            format!("select ticks_total::bigint from queue_heartbeat where executor_name = '{WORKER}'");
        db.until(&format!("select coalesce(({ticks}), 0) > 0")).await;
        let before = db.number(&ticks).await;
        db.until(&format!("select ({ticks}) > {before} + 4")).await;
        assert_eq!(db.text(LAST).await, "", "{every} {windows}");
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    }
    let here = window(23);
    let _daemon = auditing(&db, "24h", &[("GOV_HANDOFF_OFF_PEAK", &here)]);
    db.until(&format!("select ({LAST}) <> ''")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_read_is_a_finding_and_the_others_are_audited() {
    let db = registry(100).await;
    pass(&db, "25 hours").await;
    db.sql("alter table birth_registry rename column entity_code to code_of_entity").await;
    let mut daemon = auditing(&db, "24h", &[]);
    db.until("select count(*) = 1 from system_issues where coalesce_key = 'audit_failed:birth_registry' and resolved_at is null").await;
    db.until(
        "select bool_and(ended_at is not null) from v_gov_full_audit where source_name <> 'birth_registry'",
    )
    .await;
    assert_eq!(db.text(LAST).await, "");
    db.sql("alter table birth_registry rename column code_of_entity to entity_code").await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let _daemon = auditing(&db, "24h", &[]);
    db.until("select count(*) = 0 from system_issues where coalesce_key = 'audit_failed:birth_registry' and resolved_at is null").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_past_their_time_are_checked_again_and_no_others() {
    let db = active().await;
    db.sql(&births(7_000)).await;
    once(&db.url).await;
    assert!(db.number("select count(*) from gov_candidate_state").await >= 7_000, "more than one page");
    db.sql("update gov_candidate_state set input_quality_state = 'ok', input_checked_at = clock_timestamp(), dirty = false; \
            update gov_candidate_state set stale_after = clock_timestamp() - interval '1 second' where candidate_key ~ '7$'; \
            update gov_candidate_state set input_quality_state = 'rejected', input_reason = 'address', \
                   input_checked_at = clock_timestamp() - interval '25 hours' where candidate_key ~ '3$'; \
            update gov_candidate_state set stale_after = clock_timestamp() + interval '1 hour' where candidate_key ~ '5$'")
        .await;
    let due = db.number("select count(*) from gov_candidate_state where candidate_key ~ '[37]$'").await;
    let mut daemon = auditing(&db, "24h", &[]);
    let walked = format!(
        "select exists (select from gov_worker_cursor where worker_name = '{WORKER}' and source_name = 'gov_candidate_state' \
        and last_run_summary -> 'ended_at' <> 'null')"
    );
    db.until(&walked).await;
    let pending = "select count(*) from gov_candidate_state where input_quality_state = 'pending'";
    assert_eq!(db.number(pending).await, due);
    let wrong = "select count(*) from gov_candidate_state where (input_quality_state = 'pending') <> (candidate_key ~ '[37]$') or dirty \
                 or input_reason is not null";
    assert_eq!(db.number(wrong).await, 0);
    let counts = format!(
        "select events_seen::text || ' ' || attempts_written from gov_worker_cursor where worker_name = '{WORKER}' \
        and source_name = 'gov_candidate_state'"
    );
    let all = db.number("select count(*) from gov_candidate_state").await;
    assert_eq!(db.text(&counts).await, format!("{all} {due}"));
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    // The next walk is due a day after this one began; a restart begins none.
    db.sql("update gov_candidate_state set input_quality_state = 'ok'").await;
    let again = cli_with(&db.url, &["run", "--once"], &[("GOV_HANDOFF_WORKERS", WORKER)]).await;
    assert_eq!((again.code, db.number(pending).await), (0, 0), "{}", again.err);
}
