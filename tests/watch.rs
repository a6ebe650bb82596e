//! Never silent: the watchdog, the heartbeat, standbys that watch, and findings as events.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Daemon, Database, cli, done, migrated, within};

/// A lease of a second, so a cadence of a third of one: silent after one second, critical after three and a half.
const QUICK: [(&str, &str); 3] = [
    ("GOV_HANDOFF_LEASE_TTL", "1s"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms"),
    ("GOV_HANDOFF_HEARTBEAT_INTERVAL", "300ms"),
];
const WORKER: &str = "gov_handoff_intake";

/// The severity of a finding, `resolved` or `none`; looked at through a call that anybody's scheduler could make.
async fn state(db: &Database, key: &str) -> String {
    let query = format!(
        "select coalesce((select case when resolved_at is null then severity else 'resolved' end from system_issues \
         where coalesce_key = '{key}'), 'none')"
    );
    db.text(&query).await
}

async fn watched_until(db: &Database, key: &str, wanted: &str) {
    within(Duration::from_secs(30), &format!("{key} is {wanted}"), async || {
        db.sql("select fn_governance_watch()").await;
        let now = state(db, key).await;
        if now == wanted { Ok(()) } else { Err(now) }
    })
    .await;
}

async fn verdict(db: &Database, worker: &str, at: &str) -> String {
    let query = format!("select verdict from fn_governance_watch({at}) where worker_name = '{worker}'");
    db.text(&query).await
}

/// 001 §39.10, number 5.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeat() {
    let db = migrated().await;
    let mut daemon = Daemon::running(&db, "poll", &QUICK).await;
    // Quiet is not silence: nothing to do for longer than it takes to be called silent.
    let ticks = "select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let before = db.number(ticks).await;
    db.until(&format!("select ({ticks}) > {before} + 5")).await;
    assert_eq!(verdict(&db, WORKER, "null").await, "ok");
    let quiet = done(&db.url, &["watch", "--once"]).await;
    assert!(quiet.contains("ok") && quiet.contains(WORKER), "{quiet}");
    assert_eq!(state(&db, "cursor_silent_gap:gov_handoff_intake").await, "none");

    daemon.kill();
    let died = Instant::now();
    watched_until(&db, "cursor_silent_gap:gov_handoff_intake", "high").await;
    assert!(died.elapsed() > Duration::from_millis(600), "called silent after {:?}", died.elapsed());
    assert_eq!(state(&db, "queue_worker_silent:gov_handoff_intake").await, "warning");
    assert_eq!(state(&db, "handoff_silent_gap:gov_handoff_intake").await, "high");
    watched_until(&db, "cursor_silent_gap:gov_handoff_intake", "critical").await;
    assert_eq!(state(&db, "queue_worker_silent:gov_handoff_intake").await, "critical");
    assert_eq!(state(&db, "handoff_silent_gap:gov_handoff_intake").await, "critical");

    let silent = cli(&db.url, &["watch", "--once", "--json"]).await;
    assert_eq!(silent.code, 1, "{}{}", silent.out, silent.err);
    let said: Value = serde_json::from_str(&silent.out).expect("json");
    assert_eq!((said[0]["worker"].as_str(), said[0]["verdict"].as_str()), (Some(WORKER), Some("critical")));
    let listed = cli(&db.url, &["findings", "--open", "--kind", "cursor_silent_gap"]).await;
    assert_eq!(listed.code, 1, "{}{}", listed.out, listed.err);
    assert!(
        listed.out.contains("ended=without a word") && listed.out.contains("worker=gov_handoff_intake"),
        "{}",
        listed.out
    );

    // Nobody watches now but the worker itself.
    let _daemon = Daemon::running(&db, "poll", &QUICK).await;
    for kind in ["cursor_silent_gap", "handoff_silent_gap", "queue_worker_silent"] {
        let resolved = format!(
            "select resolved_at is not null from system_issues where coalesce_key = '{kind}:gov_handoff_intake'"
        );
        db.until(&resolved).await;
    }
    assert_eq!(done(&db.url, &["findings"]).await.trim(), "nothing is open");
    done(&db.url, &["watch", "--once"]).await;
    let all = done(&db.url, &["findings", "--all"]).await;
    assert!(all.contains("resolved: it ticks again"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_stop_is_a_warning_until_it_looks_forgotten() {
    let db = migrated().await;
    let mut daemon = Daemon::running(&db, "poll", &QUICK).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert_eq!(verdict(&db, WORKER, "clock_timestamp() + interval '10 seconds'").await, "warning");
    assert_eq!(state(&db, "cursor_silent_gap:gov_handoff_intake").await, "warning");
    let ended = "select detail ->> 'ended' from system_issues where issue_kind = 'queue_worker_silent'";
    assert_eq!(db.text(ended).await, "resigned");
    assert_eq!(verdict(&db, WORKER, "clock_timestamp() + interval '6 minutes'").await, "critical");
    db.sql("update dot_config set value = '1 hour' where key = 'governance.watch.planned_stop'").await;
    assert_eq!(verdict(&db, WORKER, "clock_timestamp() + interval '6 minutes'").await, "warning");
    // And whoever is not to be watched is not.
    db.sql(
        "insert into dot_config (key, value) values ('governance.watch.cadence.gov_handoff_intake', 'off')",
    )
    .await;
    assert!(done(&db.url, &["watch", "--once"]).await.contains("nobody to watch"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_by_itself_is_not_silent_afterwards() {
    let db = migrated().await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let later = "select count(*) from fn_governance_watch(clock_timestamp() + interval '1 day')";
    assert_eq!(db.number(later).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_watches_and_a_lease_that_is_wanted_by_two_is_said() {
    let db = migrated().await;
    db.sql(// The rival is alive: the session that claimed for it is connected.
        "insert into queue_heartbeat (executor_name, executor_kind, lease_owner, metadata) \
             select 'gov_handoff_intake', 'external_worker', 'rival', jsonb_build_object('term', 7, 'ttl_ms', 3600000, \
                 'session_pid', pid, 'session_role', usesysid::bigint) from pg_stat_get_activity(pg_backend_pid()); \
         insert into queue_heartbeat (executor_name, executor_kind, last_tick_at) \
             values ('iu_outbound_default', 'PG_worker', clock_timestamp() - interval '1 hour'); \
         insert into dot_config (key, value) values ('governance.watch.cadence.iu_outbound_default', '1 minute')",
    )
    .await;
    let begun = Instant::now();
    let mut standby = Daemon::start(&db.url, &["--mode", "poll"], &QUICK);
    db.until("select exists (select from system_issues where coalesce_key = 'queue_worker_silent:iu_outbound_default')").await;
    assert_eq!(state(&db, "queue_worker_silent:iu_outbound_default").await, "critical");
    assert_eq!(state(&db, "cursor_silent_gap:iu_outbound_default").await, "none", "it has no cursor of ours");
    db.sql("update queue_heartbeat set last_tick_at = clock_timestamp() where executor_name = 'iu_outbound_default'").await;
    db.until("select resolved_at is not null from system_issues where coalesce_key = 'queue_worker_silent:iu_outbound_default'").await;

    // Waiting is what standbys do; after five times the lease it is said, at the lowest severity.
    db.until("select exists (select from system_issues where coalesce_key = 'cursor_lease_conflict:gov_handoff_intake')").await;
    assert!(begun.elapsed() >= Duration::from_secs(5), "after {:?}", begun.elapsed());
    assert_eq!(state(&db, "cursor_lease_conflict:gov_handoff_intake").await, "info");
    assert_eq!(standby.sigterm().await, 0, "{}", standby.log());
    assert_eq!(state(&db, "cursor_lease_conflict:gov_handoff_intake").await, "resolved");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_loses_its_lease_while_alive_says_so() {
    let db = migrated().await;
    let _daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.sql("update queue_heartbeat set lease_owner = 'thief', last_tick_at = clock_timestamp(), \
         metadata = metadata || '{\"term\": 99, \"ttl_ms\": 1000}' where executor_name = 'gov_handoff_intake'",
    )
    .await;
    db.until("select severity = 'warning' from system_issues where coalesce_key = 'cursor_lease_conflict:gov_handoff_intake:lost' \
                       union all select false limit 1").await;
    // The thief does not tick, so the daemon has it back; after a while it is over, though a standby waits all the time.
    let waits = "select gov_handoff.gov_finding_sustain('cursor_lease_conflict', 'cursor_lease_conflict:gov_handoff_intake', 'info', \
                 '{\"worker\": \"gov_handoff_intake\"}', '500 milliseconds')";
    db.until(&format!(
        "select exists (select from system_issues where resolved_at is not null \
        and coalesce_key = 'cursor_lease_conflict:gov_handoff_intake:lost') from ({waits}) w"
    ))
    .await;
    assert_eq!(state(&db, "cursor_lease_conflict:gov_handoff_intake").await, "info");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_healthcheck_has_the_agreed_shape() {
    let db = migrated().await;
    let health = "select fn_governance_route_worker_health()::text";
    let never: Value = serde_json::from_str(&db.text(health).await).expect("json");
    assert_eq!(
        (&never["lease_active"], &never["last_run_at"]),
        (&Value::Bool(false), &Value::Null),
        "{never}"
    );
    // A lease of the usual length, so that it is fresh when it is given back.
    let mut daemon = Daemon::running(&db, "poll", &[]).await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('a', 'laws')").await;
    db.until("select (fn_governance_route_worker_health() ->> 'backlog_count')::int >= 1").await;
    let alive: Value = serde_json::from_str(&db.text(health).await).expect("json");
    let mut keys: Vec<_> = alive.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    let agreed = [
        "ageSeconds",
        "backlog_count",
        "dead_letter_open",
        "last_run_at",
        "lease_active",
        "lease_age_seconds",
        "worker_name",
    ];
    assert_eq!(keys, agreed);
    assert_eq!(alive["worker_name"], WORKER);
    assert_eq!(alive["lease_active"], true);
    assert_eq!(alive["dead_letter_open"], 0);
    assert!(alive["ageSeconds"].as_i64().is_some_and(|s| s < 5), "{alive}");
    // Given back, and not only when it has expired.
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let active = "select (fn_governance_route_worker_health() ->> 'lease_active')";
    assert_eq!(db.text(active).await, "false");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finding_is_announced_when_it_begins_gets_worse_and_ends_and_only_if_its_type_is_active() {
    let db = migrated().await;
    let raise = |severity: &str| {
        format!(
            "select gov_handoff.gov_finding_raise('handoff_lag', 'handoff_lag:x', '{severity}', '{{\"a\": 1}}')"
        )
    };
    db.sql(&raise("warning")).await;
    let events = "select count(*) from event_outbox where event_domain in ('governance', 'system')";
    assert_eq!(db.number(events).await, 0);
    let pending = "select count(*) from event_pending";
    assert_eq!(db.number(pending).await, 0, "not captured either");
    db.sql("select gov_handoff.gov_finding_resolve('handoff_lag:x', 'over')").await;

    done(&db.url, &["types", "activate", "--findings"]).await;
    let types = "select kind from (select replace(event_type, 'governance.finding.', '') as kind from event_type_registry \
                 where active and (event_type like 'governance.finding.%' or event_domain = 'system')) t order by kind collate \"C\"";
    assert_eq!(db.texts(types).await, gov_handoff::core::finding::KINDS, "every kind can be announced");
    let mut daemon = Daemon::running(&db, "poll", &QUICK).await;
    for severity in ["warning", "warning", "high", "warning", "high"] {
        db.sql(&raise(severity)).await;
    }
    // A rehearsal alarms nobody.
    db.sql("select gov_handoff.gov_finding_raise('handoff_lag', 'handoff_lag:gov_handoff_selftest', 'high')")
        .await;
    db.sql("select gov_handoff.gov_finding_resolve('handoff_lag:x', 'over'), gov_handoff.gov_finding_resolve('handoff_lag:x', 'over')",
    )
    .await;
    let told = "select concat_ws(' ', event_type, event_stream, event_severity, safe_payload ->> 'state', \
                safe_payload ->> 'severity', safe_payload ->> 'occurrences') from event_outbox \
                where event_type = 'governance.finding.handoff_lag' order by created_at, safe_payload ->> 'occurrences'";
    let name = "governance.finding.handoff_lag alert warning";
    assert_eq!(
        db.texts(told).await,
        [
            format!("{name} raised warning 2"),
            format!("{name} risen high 4"),
            format!("{name} resolved high 6")
        ]
    );
    let keys = "select distinct k from event_outbox, jsonb_object_keys(safe_payload) k where event_type like 'governance.finding.%' order by 1";
    assert_eq!(
        db.texts(keys).await,
        ["coalesce_key", "finding", "occurrences", "severity", "state"],
        "an address, no detail"
    );

    daemon.kill();
    watched_until(&db, "queue_worker_silent:gov_handoff_intake", "critical").await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.until("select resolved_at is not null from system_issues where coalesce_key = 'queue_worker_silent:gov_handoff_intake'").await;
    let silent = "select concat_ws(' ', event_severity, safe_payload ->> 'state') from event_outbox \
                  where event_domain = 'system' and event_type = 'queue_worker_silent' order by created_at";
    assert_eq!(db.texts(silent).await, ["warning raised", "critical risen", "critical resolved"]);

    // The outbox is a source, and what we say there of ourselves is never handed off.
    db.sql("insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) \
              values ('iu', 'draft_created', 'birth', 'iu:1', 'x', 'x')").await;
    db.until("select exists (select from event_pending where entity_table = 'event_outbox' and entity_ref is not null)").await;
    assert_eq!(db.number("select count(*) from event_pending where entity_table = 'event_outbox' and entity_ref is not null").await, 1);
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heartbeat_event_sums_up_and_never_comes_back() {
    for mode in ["poll", "stream"] {
        let db = migrated().await;
        let daemon = Daemon::running(&db, mode, &QUICK).await;
        db.sql("insert into birth_registry (entity_code, collection_name) select 'c' || n, 'laws' from generate_series(1, 40) n").await;
        db.until("select count(*) = 40 from event_pending where entity_table = 'birth_registry' and entity_ref is not null").await;
        // Inactive: the row has it, the queue does not.
        db.until("select (metadata #>> '{beat,total,seen}')::int = 40 from queue_heartbeat where executor_name = 'gov_handoff_intake'").await;
        let beats = "event_type = 'governance.handoff.heartbeat'";
        let captured =
            "select count(*) from event_pending where event_type_hint = 'governance.handoff.heartbeat'";
        assert_eq!(db.number(captured).await, 0);
        assert_eq!(db.number(&format!("select count(*) from event_outbox where {beats}")).await, 0);

        done(&db.url, &["types", "activate", "--all"]).await;
        db.sql("insert into birth_registry (entity_code, collection_name) select 'd' || n, 'laws' from generate_series(1, 10) n").await;
        let sum = |key: &str| {
            format!(
                "(select coalesce(sum((safe_payload ->> '{key}')::int), 0) from event_outbox where {beats})"
            )
        };
        db.until(&format!("select {} = 10 and {} = 10", sum("seen"), sum("enqueued"))).await;
        // Ten births of one collection in one commit are one mark: nine coalesced. A stream or a poll may split them.
        let coalesced = db.number(&format!("select {}::bigint", sum("coalesced"))).await;
        assert!((1..=9).contains(&coalesced), "{coalesced}");
        db.until(&format!("select count(*) > 3 from event_outbox where {beats}")).await;
        let shape = format!(
            "select distinct event_stream || ' ' || (event_subject_ref is null) || ' ' || \
                             (select string_agg(k, ',' order by k) from jsonb_object_keys(safe_payload) k) from event_outbox where {beats}"
        );
        assert_eq!(db.texts(&shape).await, ["health true coalesced,dlq,enqueued,seen"]);
        // It is no handoff: nothing of it is in the cursor of the outbox, no audit misses or doubles anything for it.
        drop(daemon);
        let seen = "select events_seen from gov_worker_cursor where source_name = 'event_outbox'";
        assert_eq!(db.number(seen).await, 0, "{mode}");
        done(&db.url, &["audit", "--full", "--check"]).await;
    }
}

/// Settings and heartbeats are written by others; a value that cannot be read is said, and everybody else is watched.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_value_leaves_a_finding_and_the_others_are_watched() {
    let db = migrated().await;
    db.sql("insert into queue_heartbeat (executor_name, executor_kind, last_tick_at, ticks_total, metadata) values \
              ('sound', 'external_worker', now() - interval '1 hour', 1, '{\"cadence_ms\": 1000}'), \
              ('half', 'external_worker', now() - interval '1 hour', 1, '{\"cadence_ms\": 1500.5}'), \
              ('foreign', 'external_worker', now() - interval '1 hour', 1, '{\"cadence_ms\": \"often\"}'), \
              ('misset', 'external_worker', now() - interval '1 hour', 1, '{\"cadence_ms\": 1000}'), \
              ('never', 'external_worker', now() - interval '1 hour', 1, '{\"cadence_ms\": 1000}')").await;
    db.sql(
        "insert into dot_config (key, value) values ('governance.watch.cadence.misset', 'now and then'), \
              ('governance.watch.cadence.never', '-5 minutes'); \
              update dot_config set value = 'a while' where key = 'governance.watch.planned_stop'",
    )
    .await;
    let watched = "select worker_name || ' ' || verdict from fn_governance_watch() order by 1";
    let all = ["half critical", "misset critical", "never critical", "sound critical"];
    assert_eq!(db.texts(watched).await, all);
    let findings = "select coalesce_key from system_issues where issue_kind = 'config_invalid' and resolved_at is null order by 1";
    assert_eq!(
        db.texts(findings).await,
        [
            "config_invalid:governance.watch.cadence.misset",
            "config_invalid:governance.watch.cadence.never",
            "config_invalid:governance.watch.planned_stop",
            "config_invalid:queue_heartbeat:foreign",
        ]
    );
    db.sql(
        "update dot_config set value = '1 second' where key like 'governance.watch.%'; \
              update queue_heartbeat set metadata = '{\"cadence_ms\": 1000}' where executor_name = 'foreign'",
    )
    .await;
    assert_eq!(db.texts(watched).await.len(), 5);
    assert_eq!(db.texts(findings).await, Vec::<String>::new());
}
