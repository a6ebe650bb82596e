//! The mode machine: whatever takes the stream away, the daemon polls, comes back by itself, and misses nothing.

use std::time::Duration;

use gov_handoff::embedded::{ClusterOptions, StopMode};
use tokio_postgres::Client;

use crate::hostile::proxy::Proxy;
use crate::support::sources::{register, rule, source};
use crate::support::{
    Daemon, Database, blocking, cli, cli_with, cluster, connect, done, migrated, number, options,
    private_cluster, text, until, until_true,
};

const QUICK: [(&str, &str); 4] = [
    ("GOV_HANDOFF_STREAM_RETRY", "500ms"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "1s"),
    ("GOV_HANDOFF_LEASE_TTL", "2s"),
];

async fn sql(client: &Client, statement: &str) {
    client.batch_execute(statement).await.unwrap_or_else(|e| panic!("{statement}: {e:?}"));
}

async fn birth(client: &Client) {
    sql(client, "insert into birth_registry (entity_code, collection_name) select 'x', 'laws' from generate_series(1, 3); \
                 insert into registry_changelog (entity_type, entity_code, action) values ('law', 'x', 'register')").await;
}

/// Every row once, told by the tables and not by our counters.
async fn all_handed_off(client: &Client) {
    until_true(client, "select not exists (select from birth_registry b where not exists (select from event_pending p \
                   where p.entity_table = 'birth_registry' and p.capture_payload ->> 'source_key' = b.id::text)) \
                   and not exists (select from registry_changelog c where c.source_system is distinct from 'gov-handoff' \
                   and not exists (select from event_pending p where p.entity_table = 'registry_changelog' \
                   and p.capture_payload ->> 'source_key' = c.id::text))").await;
    let twice = "select count(*) from (select from event_pending where entity_ref is not null \
                 group by entity_table, entity_ref, event_type_hint having count(*) > 1) d";
    assert_eq!(number(client, twice).await, 0);
}

/// Seen at all: open, or resolved by the stream's return.
async fn found(client: &Client, key: &str) {
    until_true(client, &format!("select exists (select from system_issues where coalesce_key = '{key}')"))
        .await;
}

async fn resolved(client: &Client, key: &str) {
    until_true(
        client,
        &format!("select resolved_at is not null from system_issues where coalesce_key = '{key}'"),
    )
    .await;
}

async fn restarted(db: &Database, before: &str, reason: &str) {
    let mut daemon = Daemon::running(db, "auto", &QUICK).await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
    daemon.sigterm().await;
    birth(&db.client).await;
    db.sql(&before.replace("{slot}", &db.slot())).await;
    let _daemon = Daemon::running(db, "auto", &QUICK).await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
    found(&db.client, &format!("slot_lost:{}", db.slot())).await;
    let why = db.text("select detail ->> 'reason' from system_issues where issue_kind = 'slot_lost'").await;
    assert!(why.contains(reason), "{why}");
    // Every source certified since: the gap is proven closed.
    resolved(&db.client, &format!("slot_lost:{}", db.slot())).await;
    // The reconciler closed the gap; the stream is not blamed for what nobody promised.
    assert_eq!(db.number("select count(*) from system_issues where issue_kind = 'handoff_missed'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_slot_is_made_again() {
    let db = migrated().await;
    let daemon = Daemon::running(&db, "auto", &QUICK).await;
    for _ in 0..3 {
        birth(&db.client).await;
        let drop = "do $$ begin perform pg_terminate_backend(active_pid, 5000) from pg_replication_slots \
                    where slot_name = '{slot}' and active_pid is not null; \
                    perform pg_drop_replication_slot('{slot}'); end $$";
        // The daemon may hold it again before it is dropped; then once more.
        let drop = drop.replace("{slot}", &db.slot());
        until("the slot is dropped", async || db.client.batch_execute(&drop).await.is_ok()).await;
        birth(&db.client).await;
        found(&db.client, &format!("handoff_fallback:{}", db.slot())).await;
        daemon.captures(&db.url, "stream").await;
        // Made again, and read.
        db.until_streaming().await;
        birth(&db.client).await;
        all_handed_off(&db.client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_advanced_by_somebody_else_is_a_gap_and_no_loss() {
    let db = migrated().await;
    let advance = "do $$ begin perform pg_replication_slot_advance('{slot}', pg_current_wal_lsn()); end $$";
    restarted(&db, advance, "ahead of what we have").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restored_from_a_backup_is_a_gap_and_no_loss() {
    let db = migrated().await;
    restarted(&db, "update gov_stream_position set system_identifier = '1'", "another server").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_timeline_is_a_gap_and_no_loss() {
    let db = migrated().await;
    restarted(&db, "update gov_stream_position set timeline = 99", "another timeline").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_another_process_took_is_polled_around_until_it_is_free() {
    let db = migrated().await;
    let mut first = Daemon::running(&db, "auto", &QUICK).await;
    first.sigterm().await;
    let done_by = cli_with(&db.url, &["sources", "apply"], &[("GOV_HANDOFF_WORKER", "gov_other")]).await;
    assert_eq!(done_by.code, 0, "{}", done_by.err);
    let other = [&QUICK[..], &[("GOV_HANDOFF_WORKER", "gov_other")]].concat();
    let mut thief = Daemon::start(&db.url, &["--mode", "stream"], &other);
    db.until(&format!("select active from pg_replication_slots where slot_name = '{}'", db.slot())).await;
    let ours = Daemon::start(&db.url, &["--mode", "auto"], &QUICK);
    ours.captures(&db.url, "poll").await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
    let status = cli(&db.url, &["status"]).await.out;
    assert!(status.contains("is held by the server's process"), "{status}");
    thief.sigterm().await;
    ours.captures(&db.url, "stream").await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
}

/// Gives the publication a row filter that hides rows, in a way that its shape does not show.
async fn hiding(client: &Client) -> String {
    let columns = "select string_agg(quote_ident(c), ', ') from pg_publication_tables t, unnest(t.attnames) c \
                   where t.pubname = 'gov_handoff' and t.tablename = 'registry_changelog'";
    format!(
        "alter publication gov_handoff drop table registry_changelog; \
         alter publication gov_handoff add table registry_changelog ({}) \
         where (source_system is distinct from 'gov-handoff' and entity_code <> 'hidden')",
        text(client, columns).await
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_is_dropped_or_narrowed_is_mended() {
    let db = migrated().await;
    let daemon = Daemon::running(&db, "auto", &QUICK).await;
    birth(&db.client).await;
    let hiding = hiding(&db.client).await;
    for harm in [
        "alter publication gov_handoff drop table registry_changelog",
        "drop publication gov_handoff",
        &hiding,
    ] {
        db.sql(harm).await;
        birth(&db.client).await;
        db.until("select count(*) = (select count(*) from gov_worker_cursor) and bool_and(rowfilter is null or rowfilter !~ 'hidden') \
               from pg_publication_tables where pubname = 'gov_handoff'",
        )
        .await;
        daemon.captures(&db.url, "stream").await;
        birth(&db.client).await;
        all_handed_off(&db.client).await;
    }
    found(&db.client, &format!("handoff_fallback:{}", db.slot())).await;
}

/// The slot decodes with the catalogue of the time, so a row that was written before the publication was mended does not come
/// through it, and is not there yet when the tables are read at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_before_the_publication_was_mended_and_committed_after_is_read_from_the_tables() {
    let db = migrated().await;
    let settings =
        [&QUICK[..], &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h")]]
            .concat();
    let daemon = Daemon::running(&db, "auto", &settings).await;
    daemon.captures(&db.url, "stream").await;
    let writer = connect(&db.url).await;
    let complete = "select count(*) = (select count(*) from gov_worker_cursor) from pg_publication_tables where pubname = 'gov_handoff'";
    db.sql("alter publication gov_handoff drop table birth_registry").await;
    sql(&writer, "begin; insert into birth_registry (entity_code, collection_name) values ('late', 'laws')")
        .await;
    db.until(complete).await;
    daemon.captures(&db.url, "stream").await;
    birth(&db.client).await;
    let late = "select exists (select from event_pending where canonical_address = 'laws:late')";
    let blamed = "select count(*) from system_issues where issue_kind = 'handoff_missed'";
    sql(&writer, "commit").await;
    db.until(late).await;
    all_handed_off(&db.client).await;
    assert_eq!(db.number(blamed).await, 0, "it was not the stream's to bring");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusion_that_is_redefined_reaches_the_publication() {
    let db = migrated().await;
    let daemon = Daemon::running(&db, "auto", &QUICK).await;
    let sources = include_str!("../replication/sources.toml");
    let more = sources.replacen("equals = \"gov-handoff\"", "one_of = [\"gov-handoff\", \"robot\"]", 1);
    assert_ne!(sources, more);
    register(&db.url, &more).await;
    let filter = "select coalesce(max(rowfilter), '') like '%robot%' from pg_publication_tables \
                  where pubname = 'gov_handoff' and tablename = 'registry_changelog'";
    db.until(filter).await;
    daemon.captures(&db.url, "stream").await;
    // And where it may not be changed by us, it is refused with what to do.
    register(&db.url, sources).await;
    db.until(&format!("select not ({filter})")).await;
    drop(daemon);
    register(&db.url, &more).await;
    let refused =
        cli_with(&db.url, &["run", "--once", "--mode", "stream"], &[("GOV_HANDOFF_CREATE", "false")]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("other exclusions") && refused.err.contains("replication setup"),
        "{}",
        refused.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_loses_replication_is_polled_around_until_it_has_it_again() {
    let db = migrated().await;
    let role = format!("repl_{}", db.name);
    db.sql(&format!("create role {role} login replication in role gov_handoff_worker")).await;
    done(&db.url, &["replication", "setup"]).await;
    let url = db.url_as(&role);
    let environment = [&QUICK[..], &[("GOV_HANDOFF_REPLICATION_URL", url.as_str())]].concat();
    let daemon = Daemon::start(&db.url, &["--mode", "auto"], &environment);
    daemon.captures(&db.url, "stream").await;
    birth(&db.client).await;
    let end = format!(
        "alter role {role} noreplication; do $$ begin perform pg_terminate_backend(active_pid) \
                       from pg_replication_slots where slot_name = '{}' and active_pid is not null; end $$",
        db.slot()
    );
    db.sql(&end).await;
    daemon.captures(&db.url, "poll").await;
    db.until(
        "select metadata ->> 'mode_reason' like '%no REPLICATION attribute%' from queue_heartbeat \
                       where executor_name = 'gov_handoff_intake'",
    )
    .await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
    db.sql(&format!("alter role {role} replication")).await;
    daemon.captures(&db.url, "stream").await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_stream_did_not_bring_is_handed_off_and_reported() {
    let db = migrated().await;
    let _daemon = Daemon::running(&db, "auto", &QUICK).await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
    // Two passes have looked, so that the stream vouches for what comes now.
    db.until("select count(*) = (select count(*) from gov_worker_cursor) from gov_worker_frontier where certified_at > now() - interval '1 minute'",
    )
    .await;
    // A publication without our note is somebody else's, who knows what its filters mean: these hide rows.
    let hiding = hiding(&db.client).await;
    db.sql(&format!("begin; {hiding}; comment on publication gov_handoff is null; commit")).await;
    // A pass that began with the filter in force has ended: the daemon leaves the publication as it is.
    db.until_certified_again("registry_changelog").await;
    db.sql("insert into registry_changelog (entity_type, entity_code, action) values ('law', 'hidden', 'register')").await;
    all_handed_off(&db.client).await;
    found(&db.client, "handoff_missed:registry_changelog").await;
    assert_eq!(
        db.number("select count(*) from system_issues where coalesce_key = 'handoff_missed:birth_registry'")
            .await,
        0
    );
    db.until("select exists (select from event_pending where event_type_hint = 'governance.handoff.certified' \
                       and entity_table = 'registry_changelog' and capture_payload #>> '{repaired,missed_by_stream}' = '1')").await;
    // And certificates without a miss end it.
    resolved(&db.client, "handoff_missed:registry_changelog").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_and_a_slot_whose_log_is_gone_are_survived() {
    let settings = vec![
        ("max_slot_wal_keep_size".to_owned(), "32MB".to_owned()),
        ("min_wal_size".to_owned(), "32MB".to_owned()),
        ("max_wal_size".to_owned(), "64MB".to_owned()),
    ];
    let cluster = std::sync::Arc::new(private_cluster(ClusterOptions { settings, ..options() }).await);
    cluster.create_database("lost", None).await.expect("a database");
    let url = cluster.url("lost");
    done(&url, &["migrate"]).await;
    let mut daemon = Daemon::start(&url, &["--mode", "auto"], &QUICK);
    daemon.captures(&url, "stream").await;
    birth(&connect(&url).await).await;
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let server = std::sync::Arc::clone(&cluster);
        blocking(move || server.stop(mode)).await.expect("stop");
        let server = std::sync::Arc::clone(&cluster);
        blocking(move || server.start_again()).await.expect("start");
        let client = connect(&url).await;
        birth(&client).await;
        daemon.captures(&url, "stream").await;
        until_true(&client, "select active from pg_replication_slots where slot_name = 'gov_handoff_lost'")
            .await;
        birth(&client).await;
        all_handed_off(&client).await;
    }
    daemon.sigterm().await;
    let client = connect(&url).await;
    birth(&client).await;
    for _ in 0..60 {
        sql(&client, "select pg_logical_emit_message(true, 'fill', repeat('x', 4000000))").await;
    }
    sql(&client, "select pg_switch_wal(); checkpoint").await;
    until_true(
        &client,
        "select wal_status = 'lost' from pg_replication_slots where slot_name = 'gov_handoff_lost'",
    )
    .await;
    let again = Daemon::start(&url, &["--mode", "auto"], &QUICK);
    again.captures(&url, "stream").await;
    birth(&client).await;
    all_handed_off(&client).await;
    found(&client, "slot_lost:gov_handoff_lost").await;
    until_true(
        &client,
        "select wal_status <> 'lost' from pg_replication_slots where slot_name = 'gov_handoff_lost'",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_gives_itself_up_before_its_budget_is_spent() {
    const BUDGET: i64 = 64 << 20;
    let cluster = private_cluster(options()).await;
    cluster.create_database("budget", None).await.expect("a database");
    let url = cluster.url("budget");
    done(&url, &["migrate"]).await;
    let client = connect(&url).await;
    let environment =
        [&QUICK[..], &[("GOV_HANDOFF_WAL_BUDGET_MB", "64"), ("GOV_HANDOFF_REJOIN_AFTER", "3s")]].concat();
    let daemon = Daemon::start(&url, &["--mode", "auto"], &environment);
    daemon.captures(&url, "stream").await;
    let held = connect(&url).await;
    sql(&held, "begin; insert into birth_registry (entity_code, collection_name) values ('held', 'laws')")
        .await;
    let slot = "select coalesce((select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint \
                from pg_replication_slots where slot_name = 'gov_handoff_budget'), 0)";
    let mut most = 0;
    let gone = "select exists (select from system_issues where coalesce_key = 'slot_budget_exceeded:gov_handoff_budget') \
                and not exists (select from pg_replication_slots where slot_name = 'gov_handoff_budget')";
    loop {
        sql(&client, "select pg_logical_emit_message(true, 'fill', repeat('x', 1000000))").await;
        most = most.max(number(&client, slot).await);
        if client.query_one(gone, &[]).await.expect("a query").get::<_, bool>(0) {
            break;
        }
        assert!(most < BUDGET, "the slot retained {most} bytes");
        // A pace, not a wait: the log grows slowly enough that the guard, which looks now and then, can be in time.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(most > BUDGET / 2, "it gave up at {most} bytes already");
    daemon.captures(&url, "poll").await;
    birth(&client).await;
    until_true(&client, "select count(*) >= 3 from event_pending where entity_table = 'birth_registry'")
        .await;
    sql(&held, "commit").await;
    all_handed_off(&client).await;
    daemon.captures(&url, "stream").await;
    birth(&client).await;
    all_handed_off(&client).await;
    resolved(&client, "slot_budget_exceeded:gov_handoff_budget").await;
}

/// A server that decodes log in which nothing is for us sends keepalives and nothing else; one that is gone, or hangs, or is
/// behind a network that lost it, sends nothing at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_says_it_lives_is_believed_and_a_silent_one_is_given_up() {
    let db = migrated().await;
    let proxy = Proxy::start(cluster().port()).await;
    let through = db.url.replace(&format!(":{}/", cluster().port()), &format!(":{}/", proxy.port));
    let settings = [
        &QUICK[..],
        &[("GOV_HANDOFF_REPLICATION_URL", through.as_str()), ("GOV_HANDOFF_STALLED_AFTER", "2s")],
    ]
    .concat();
    let daemon = Daemon::running(&db, "auto", &settings).await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
    proxy.murmur();
    birth(&db.client).await;
    // Nothing is to happen, for more than twice the time after which a silent stream is given up. The daemon is alive
    // meanwhile: it renews its lease.
    let ticks = "select ticks_total from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let before = db.number(ticks).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(db.number(ticks).await > before + 2, "{}", daemon.log());
    assert!(!daemon.log().contains("stalled"), "{}", daemon.log());
    let mode = "select metadata ->> 'mode' from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    assert_eq!(db.text(mode).await, "stream");
    proxy.swallow();
    let key = format!("handoff_fallback:{}", db.slot());
    found(&db.client, &key).await;
    let reason = format!("select detail ->> 'reason' from system_issues where coalesce_key = '{key}'");
    let reason = db.text(&reason).await;
    assert!(reason.contains("the stream stalled"), "{reason}");
    birth(&db.client).await;
    // A new connection is not swallowed, so it comes back by itself.
    resolved(&db.client, &key).await;
    daemon.captures(&db.url, "stream").await;
    birth(&db.client).await;
    all_handed_off(&db.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_over_its_budget_that_cannot_be_dropped_is_critical_and_stops_nothing_else() {
    let db = migrated().await;
    let (role, slot) = (format!("keeper_{}", db.name), db.slot());
    let setup = format!(
        "create table extra (id int primary key, code text);
         create role {role} login in role gov_handoff_worker;
         grant select on birth_registry, registry_changelog, pivot_definitions, governance_ruleset, event_outbox, extra to {role}"
    );
    db.sql(&setup).await;
    db.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
    db.sql("select pg_logical_emit_message(false, 'fill', repeat('x', 3000000))").await;
    let quick = [("GOV_HANDOFF_WAL_BUDGET_MB", "1"), ("GOV_HANDOFF_HEARTBEAT_INTERVAL", "300ms")];
    let daemon = Daemon::start(&db.url_as(&role), &["--mode", "poll"], &[&QUICK[..], &quick].concat());
    daemon.captures(&db.url, "poll").await;
    let held = format!(
        "select coalesce((select severity = 'critical' and resolved_at is null and detail ->> 'action' like '%pg_drop_replication_slot%' \
         from system_issues where coalesce_key = 'slot_budget_exceeded:{slot}:held'), false)"
    );
    db.until(&held).await;
    let term = "select (metadata ->> 'term')::bigint from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let before = db.number(term).await;
    // Rows are captured, a type that is activated is drained, a new source is taken up, and the worker beats, though the
    // outbox refuses the event of it.
    db.sql("alter table event_outbox add constraint no_beat check (event_type <> 'governance.handoff.heartbeat')").await;
    birth(&db.client).await;
    db.until(
        "select count(*) = 3 from event_pending where event_type_hint = 'governance.handoff.object_born'",
    )
    .await;
    let active = "select gov_handoff.gov_type_set_active('governance.handoff.' || t, true) from unnest(array['object_born', 'heartbeat']) t";
    db.sql(active).await;
    db.until("select count(*) = 3 from event_outbox where event_type = 'governance.handoff.object_born'")
        .await;
    db.sql("insert into extra values (1, 'a')").await;
    let extra = source("extra", "int4", &["id", "code"])
        + &rule("object_born", "extra", "extra:{code}", ["scope", "extra"]);
    register(&db.url, &extra).await;
    db.until("select exists (select from event_outbox where event_subject_table = 'extra')").await;
    let beat =
        "select metadata #>> '{beat,at}' from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let at = db.text(beat).await;
    db.until(&format!("select ({beat}) <> '{at}'")).await;
    assert_eq!(db.number(term).await, before, "{}", daemon.log());
    assert!(!daemon.log().contains("could not be renewed"), "{}", daemon.log());
    db.until(&held).await;
    // Allowed again, it does it by itself.
    db.sql(&format!("alter role {role} replication")).await;
    db.until(&format!("select not exists (select from pg_replication_slots where slot_name = '{slot}')"))
        .await;
    resolved(&db.client, &format!("slot_budget_exceeded:{slot}:held")).await;
}

/// The database was renamed, or the setting changed: the old slot retains log and no session reads it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_the_configuration_no_longer_names_is_found_and_given_up_for_its_size() {
    let db = migrated().await;
    let (before, named) = (format!("gov_handoff_was_{}", db.name), format!("other_{}", db.name));
    // One is known by its name, the other by the position that is kept for it. Slots of others are left alone.
    db.sql(&format!(
        "insert into gov_stream_position (slot_name, system_identifier, timeline, durable_lsn) values ('{named}', '1', 1, '0/1')"
    ))
    .await;
    let foreign = format!("theirs_{}", db.name);
    for slot in [&before, &named, &foreign] {
        db.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
    }
    let settings = [&QUICK[..], &[("GOV_HANDOFF_WAL_BUDGET_MB", "16")]].concat();
    for mode in ["poll", "auto"] {
        let mut daemon = Daemon::start(&db.url, &["--mode", mode], &settings);
        for slot in [&before, &named] {
            let said = format!(
                "select coalesce((select resolved_at is null and severity = 'warning' and (detail ->> 'retained')::bigint >= 0 \
                   and detail ->> 'action' like '%pg_drop_replication_slot(''{slot}'')%' \
                   from system_issues where coalesce_key = 'slot_unused:{slot}'), false)"
            );
            db.until(&said).await;
        }
        daemon.sigterm().await;
    }
    db.sql(&format!("select pg_drop_replication_slot('{named}')")).await;
    let _daemon = Daemon::running(&db, "poll", &settings).await;
    // A finding that an earlier instance wrote ends too.
    resolved(&db.client, &format!("slot_unused:{named}")).await;
    assert_eq!(db.number(&slots(&before)).await, 1, "given up though it retains little");
    for _ in 0..16 {
        db.sql("select pg_logical_emit_message(true, 'fill', repeat('x', 1000000))").await;
    }
    db.until(&format!("select ({}) = 0", slots(&before))).await;
    let key = format!("slot_budget_exceeded:{before}");
    found(&db.client, &key).await;
    for key in [&key, &format!("slot_unused:{before}")] {
        resolved(&db.client, key).await;
    }
    assert_eq!(db.number(&slots(&foreign)).await, 1, "a slot of others is none of ours");
    let about = "select count(*) from system_issues where coalesce_key like '%theirs%'";
    assert_eq!(db.number(about).await, 0);
    birth(&db.client).await;
    all_handed_off(&db.client).await;
}

/// A slot belongs to its database whatever the database is called; the name that we would give it is another one now.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_the_configuration_no_longer_names_is_guarded_by_the_same_budget() {
    let cluster = private_cluster(options()).await;
    cluster.create_database("before", None).await.expect("a database");
    done(&cluster.url("before"), &["migrate"]).await;
    let mut daemon = Daemon::start(&cluster.url("before"), &["--mode", "auto"], &QUICK);
    daemon.captures(&cluster.url("before"), "stream").await;
    daemon.sigterm().await;
    let elsewhere = connect(&cluster.url("postgres")).await;
    until_true(&elsewhere, "select not exists (select from pg_stat_activity where datname = 'before')").await;
    sql(&elsewhere, "alter database before rename to after").await;
    let (url, slot) = (cluster.url("after"), "gov_handoff_before");
    let client = connect(&url).await;
    let doctor = cli(&url, &["doctor"]).await;
    assert!(doctor.out.contains(&format!("{slot} retains")), "{}{}", doctor.out, doctor.err);
    let status = cli(&url, &["status"]).await;
    assert!(status.out.contains(&format!("{slot} not in use, retains")), "{}", status.out);

    for _ in 0..16 {
        sql(&client, "select pg_logical_emit_message(true, 'fill', repeat('x', 1000000))").await;
    }
    let settings = [&QUICK[..], &[("GOV_HANDOFF_WAL_BUDGET_MB", "16")]].concat();
    // It says so first: a daemon that dies before it drops the slot has said why.
    let dying = [&settings[..], &[("GOV_HANDOFF_FAILPOINT", "unused_before_drop:1")]].concat();
    let mut daemon = Daemon::start(&url, &["--mode", "poll"], &dying);
    daemon.dies_at("unused_before_drop:1").await;
    let key = format!("slot_budget_exceeded:{slot}");
    found(&client, &key).await;
    assert_eq!(number(&client, &slots(slot)).await, 1);
    let daemon = Daemon::start(&url, &["--mode", "poll"], &settings);
    until_true(&client, &format!("select ({}) = 0", slots(slot))).await;
    for key in [&key, &format!("slot_unused:{slot}")] {
        resolved(&client, key).await;
    }
    birth(&client).await;
    all_handed_off(&client).await;
    drop(daemon);
    assert!(!cli(&url, &["doctor"]).await.out.contains(slot));
}

fn slots(name: &str) -> String {
    format!("select count(*) from pg_replication_slots where slot_name = '{name}'")
}
