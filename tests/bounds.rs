//! What stays bounded: memory under huge transactions, long backlogs and wide rows; the log that an idle slot retains.

use std::time::Duration;

use crate::support::{active, active_on, options, private_cluster, until, within};

/// What the process may have resident, in MiB, at any moment.
const MEMORY: u64 = 64;

#[tokio::test]
async fn a_million_births_in_one_transaction_take_bounded_memory_and_are_acknowledged_at_their_end() {
    const BIRTHS: i64 = 1_000_000;
    let cluster = private_cluster(options()).await;
    let registry = active_on(&cluster).await;
    // The stream alone: a pass over the table would find the rows too, and show nothing about the slot. On a busy machine the
    // transaction takes longer than the minute after which a certifying pass is due.
    let settings = [("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h")];
    let mut daemon = registry.daemon("stream", &settings);
    registry.until_streaming().await;
    registry
        .sql(&format!(
            "begin; insert into birth_registry (entity_code, collection_name) select 'm' || g, 'c' || g % 50
             from generate_series(1, {BIRTHS}) g"
        ))
        .await;
    let end = registry.text("select pg_current_wal_insert_lsn()::text").await;
    registry.sql("commit").await;
    let past = format!(
        "select count(*) from pg_replication_slots where slot_name = '{}' and confirmed_flush_lsn > '{end}'",
        registry.slot()
    );
    let (mut parts, mut last) = (0, 0);
    within(Duration::from_secs(300), "the transaction is acknowledged", async || {
        // The position is read before the rows are counted, so that it may be old but never early.
        let acknowledged = registry.number(&past).await == 1;
        let seen = registry
            .number("select events_seen from gov_worker_cursor where source_name = 'birth_registry'")
            .await;
        parts += u32::from(seen > last);
        last = seen;
        assert!(daemon.has_ended().is_none(), "{}", daemon.log());
        if acknowledged { Ok(()) } else { Err(format!("{seen} rows seen")) }
    })
    .await;
    let signals = registry.number("select count(*) from verify.handoffs").await;
    assert_eq!(signals, BIRTHS, "acknowledged too early");
    assert!(parts > 3, "it was applied in parts ({parts})");
    let once = "select count(distinct event_subject_ref) from verify.handoffs where safe_payload ->> 'captured_by' = 'stream'";
    assert_eq!(registry.number(once).await, BIRTHS);
    assert!(daemon.peak_mib() < MEMORY, "{} MiB resident", daemon.peak_mib());
}

#[tokio::test]
async fn a_long_backlog_is_polled_in_bounded_memory() {
    let registry = active().await;
    registry.births("b", 200_000).await;
    let daemon = registry.daemon("poll", &[]);
    let born = "select count(*) from verify.handoffs where event_type = 'governance.handoff.object_born'";
    let all = async || match registry.number(born).await {
        200_000 => Ok(()),
        handed_off => Err(format!("{handed_off} handed off")),
    };
    within(Duration::from_secs(300), "the backlog is handed off", all).await;
    registry.until_all_handed_off().await;
    assert!(daemon.peak_mib() < MEMORY, "{} MiB resident", daemon.peak_mib());
}

#[tokio::test]
async fn rows_of_a_megabyte_are_set_aside_in_bounded_memory_and_the_others_pass() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")]);
        registry.until_mode(mode).await;
        registry
            .sql("insert into birth_registry (entity_code, collection_name)
                  select case when g % 2 = 0 then repeat(md5(g::text), 32768) else 'e' || g end, 'c' from generate_series(1, 40) g")
            .await;
        registry.until_all_handed_off().await;
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter").await, 20, "{mode}");
        assert_eq!(registry.number("select count(*) from verify.handoffs").await, 20, "{mode}");
        println!("{mode}: {} MiB resident with megabyte rows", daemon.peak_mib());
        assert!(daemon.peak_mib() < WIDE, "{mode}: {} MiB resident", daemon.peak_mib());
        drop(daemon);
    }
}

/// For rows of a megabyte each.
const WIDE: u64 = 64;

/// Rows far beyond any address. The server sends a row whole, so one of them is held; their number does not matter: the 24
/// here are more than ten times what the process may have.
#[tokio::test]
async fn rows_of_thirty_megabytes_take_the_memory_of_a_few_and_not_of_all() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")]);
        registry.until_mode(mode).await;
        let before = daemon.peak_mib();
        registry
            .sql("insert into birth_registry (entity_code, collection_name) select repeat('x', 30000000) || g, 'c' from generate_series(1, 24) g")
            .await;
        let letters = "select count(*) from iu_route_dead_letter";
        until("all are set aside", async || registry.number(letters).await == 24).await;
        println!("{mode}: {before} MiB resident before, {} MiB with rows of 30 MB", daemon.peak_mib());
        assert!(daemon.peak_mib() < MEMORY, "{mode}: {} MiB resident", daemon.peak_mib());
        drop(daemon);
    }
}

#[tokio::test]
async fn many_wide_rows_are_streamed_in_memory_that_does_not_follow_their_number() {
    // Two hundred megabytes, and the process may have 64.
    const BIRTHS: i64 = 2_000;
    let registry = active().await;
    // Certified all the while, because that reads the same rows once more.
    let settings = [("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1s")];
    let daemon = registry.daemon("stream", &settings);
    registry.until_streaming().await;
    // A hundred kilobytes each that the server can make small, so that its indexes take them and they are handed off.
    registry
        .sql(&format!(
            "insert into birth_registry (entity_code, collection_name) select repeat('x', 100000) || g, 'c' from generate_series(1, {BIRTHS}) g"
        ))
        .await;
    let (all, streamed) = (
        "select count(*) from verify.handoffs",
        "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = 'stream'",
    );
    // Two hundred megabytes of text through the server's indexes take minutes on a machine that does other things as well.
    within(Duration::from_secs(300), "all of them", async || match registry.number(all).await {
        BIRTHS => Ok(()),
        n => Err(format!("{n} handed off")),
    })
    .await;
    // On a busy machine a certifying pass may come before the stream, for a part of them.
    assert!(registry.number(streamed).await > BIRTHS / 2, "{}", daemon.log());
    println!("{} MiB resident with {BIRTHS} wide rows", daemon.peak_mib());
    assert!(daemon.peak_mib() < MEMORY, "{} MiB resident", daemon.peak_mib());
    drop(daemon);
}

#[tokio::test]
async fn an_idle_source_on_a_busy_server_retains_little_log() {
    const MIB: i64 = 1 << 20;
    let cluster = private_cluster(options()).await;
    let registry = active_on(&cluster).await;
    let neighbour = active_on(&cluster).await;
    let daemon = registry.daemon("stream", &[]);
    registry.until_streaming().await;
    registry.births("b", 3).await;
    registry.until_all_handed_off().await;
    for other in [&registry, &neighbour] {
        other.sql("create table busy (t text)").await;
    }
    let lag = |of: &str| {
        let slot = registry.slot();
        format!(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), {of})::bigint from pg_replication_slots where slot_name = '{slot}'"
        )
    };
    let begun = registry.text("select pg_current_wal_lsn()::text").await;
    for round in 0..6 {
        let busy = if round % 2 == 0 { &registry } else { &neighbour };
        busy.sql("insert into busy select repeat(md5(g::text), 32) from generate_series(1, 40000) g").await;
        // A checkpoint writes down which transactions run, without which no slot can let go of log.
        busy.sql("checkpoint").await;
        let bounded = async || {
            registry.number(&lag("confirmed_flush_lsn")).await < 32 * MIB
                && registry.number(&lag("restart_lsn")).await < 64 * MIB
        };
        until("the slot lets go of log that holds nothing for it", bounded).await;
    }
    let written = format!("select pg_wal_lsn_diff(pg_current_wal_lsn(), '{begun}')::bigint");
    assert!(registry.number(&written).await > 200 * MIB, "the server was busy");
    registry.births("after", 3).await;
    registry.until_all_handed_off().await;
    drop(daemon);
}
