//! Killing the program, or the server under it, at any moment: nothing is missing, nothing is twice, nothing was
//! acknowledged before it was durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gov_handoff::embedded::{Cluster, StopMode};

use crate::support::{
    Database, Random, active, active_on, blocking, connect, done, number, options, private_cluster, seed,
    under_writers, until, until_all_handed_off,
};

/// A second slot, read by the server's own test plugin, knows where each commit ends. What our slot has acknowledged
/// must be recorded (returns how much that is): the keyset lane would repair the loss later, and hide it.
async fn assert_acknowledged_is_recorded(registry: &Database) -> i64 {
    // A temporary table, because the server cannot guess how many changes there are.
    registry
        .sql(&format!(
            "drop table if exists pg_temp.acknowledged;
             create temporary table acknowledged as
             select key, max(lsn) filter (where data like 'COMMIT%') over (partition by tx) as ends
               from (select lsn, data, substring(data from '^table public.birth_registry: INSERT: id.integer.:([0-9]+)') as key,
                            sum((data like 'BEGIN%')::int) over (order by n) as tx
                       from (select row_number() over () as n, lsn, data
                               from pg_logical_slot_peek_changes('witness_{}', null, null, 'skip-empty-xacts', '1')) w) x;
             delete from acknowledged a using pg_replication_slots s
              where s.slot_name = '{}' and (a.key is null or a.ends > s.confirmed_flush_lsn);
             analyze acknowledged",
            registry.name,
            registry.slot()
        ))
        .await;
    let lost = "select count(*) from (select key from acknowledged except
                  select safe_payload ->> 'source_key' from verify.handoffs where event_subject_table = 'birth_registry') l";
    assert_eq!(registry.number(lost).await, 0, "acknowledged, but not recorded");
    registry.number("select count(*) from acknowledged").await
}

async fn witness(registry: &Database) {
    // Ours first: what was committed before it exists is not its to acknowledge.
    done(&registry.url, &["replication", "setup"]).await;
    registry
        .sql(&format!(
            "select pg_create_logical_replication_slot('witness_{}', 'test_decoding')",
            registry.name
        ))
        .await;
}

/// Small batches, so that a few hundred rows pass every step several times.
const SMALL: [(&str, &str); 2] = [("GOV_HANDOFF_BATCH_ROWS", "20"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")];

async fn dies_at(registry: &Database, mode: &str, failpoint: &str) {
    let settings = [&SMALL[..], &[("GOV_HANDOFF_FAILPOINT", failpoint)]].concat();
    let mut daemon = registry.daemon(mode, &settings);
    if mode == "stream" {
        // Its first keyset passes are over, so that what is written now can only come by the stream.
        registry.until_streaming().await;
        let resting = "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle'
                          and application_name like 'gov-handoff reader %' and state_change < clock_timestamp() - interval '300 ms'";
        until("the keyset lane rests", async || registry.number(resting).await == 1).await;
    }
    let mut round = 0;
    // One transaction larger than a batch, then small ones, until it is dead.
    while daemon.has_ended().is_none() {
        registry.births(&format!("{failpoint}-{round}-"), if round == 0 { 50 } else { 3 }).await;
        registry.sql("insert into registry_changelog (entity_type, entity_code, action) values ('collection', 'x', 'retire')").await;
        round += 1;
        assert!(round < 3_000, "{failpoint} was never reached: {}", daemon.log());
        // A pace, not a wait: transactions come one by one until it is dead.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    daemon.dies_at(failpoint).await;
    registry.births(&format!("{failpoint}-while-dead-"), 5).await;
}

#[tokio::test]
async fn a_stream_killed_around_apply_and_acknowledge_neither_loses_nor_doubles() {
    let registry = active().await;
    witness(&registry).await;
    let mut acknowledged = 0;
    for step in ["before_apply", "after_apply", "after_acknowledge"] {
        for time in [1, 3, 5] {
            let failpoint = format!("{step}:{time}");
            dies_at(&registry, "stream", &failpoint).await;
            acknowledged = assert_acknowledged_is_recorded(&registry).await;
            let _daemon = registry.daemon("stream", &SMALL);
            registry.until_all_handed_off().await;
            registry.until_stream_is_past_now().await;
        }
    }
    assert!(acknowledged > 300, "the witness saw {acknowledged}");
}

#[tokio::test]
async fn a_stream_killed_between_recording_and_confirming_an_idle_position_continues() {
    let registry = active().await;
    {
        let mut daemon = registry.daemon("stream", &[("GOV_HANDOFF_FAILPOINT", "after_confirm:1")]);
        registry.until_streaming().await;
        // Log that holds nothing for us makes an idle position worth confirming.
        registry.sql("create table elsewhere as select g from generate_series(1, 400000) g").await;
        daemon.dies_at("after_confirm:1").await;
    }
    registry.births("b", 10).await;
    let daemon = registry.daemon("stream", &SMALL);
    registry.until_all_handed_off().await;
    let lost = "select count(*) from system_issues where issue_kind = 'slot_lost'";
    assert_eq!(registry.number(lost).await, 0, "our record is ahead of the slot, never behind");
    drop(daemon);
}

/// The position of a lone birth is recorded later than the birth is handed off, so it is acknowledged later still.
#[tokio::test]
async fn lone_births_are_acknowledged_only_when_their_position_is_recorded() {
    // A server of its own, whose log ends with what we wrote.
    let cluster = private_cluster(options()).await;
    let registry = active_on(&cluster).await;
    witness(&registry).await;
    let slot = registry.slot();
    let ahead = format!(
        "select count(*) from pg_replication_slots s join gov_stream_position p using (slot_name)
          where slot_name = '{slot}' and s.confirmed_flush_lsn > p.durable_lsn"
    );
    let past = |position: &str| {
        format!(
            "select count(*) from pg_replication_slots where slot_name = '{slot}' and confirmed_flush_lsn >= '{position}'"
        )
    };
    let mut acknowledged = 0;
    for round in 0..3 {
        let mut daemon = registry.daemon("stream", &SMALL);
        registry.until_streaming().await;
        // At least sixty, and until the first thirty are acknowledged; the kill comes while they are written.
        let (mut birth, mut thirty) = (0, String::new());
        while birth < 60 || registry.number(&past(&thirty)).await == 0 {
            registry.births(&format!("lone-{round}-{birth}-"), 1).await;
            assert_eq!(registry.number(&ahead).await, 0, "acknowledged ahead of the record");
            let code = format!("lone-{round}-{birth}-1");
            let alone =
                format!("select count(*) > 0 from verify.handoffs where canonical_address like '%:{code}'");
            registry.until(&alone).await;
            birth += 1;
            if birth == 30 {
                thirty = registry.text("select pg_current_wal_insert_lsn()::text").await;
            }
            assert!(birth < 5_000, "nothing is acknowledged");
        }
        daemon.kill();
        acknowledged = assert_acknowledged_is_recorded(&registry).await;
        assert_eq!(registry.number(&ahead).await, 0, "acknowledged ahead of the record");
    }
    assert!(acknowledged > 60, "some were acknowledged under way: {acknowledged}");
    let mut daemon = registry.daemon("stream", &SMALL);
    registry.until_streaming().await;
    registry.until_all_handed_off().await;
    // At rest the last of them is acknowledged without anything after it.
    let here = registry.text("select pg_current_wal_insert_lsn()::text").await;
    registry.until_acknowledged(&here).await;
    // Told to end just after one, it leaves nothing to be sent again.
    // Asked before it commits: afterwards our own commit may lie before the answer.
    registry.sql("begin").await;
    registry.births("last", 1).await;
    let here = registry.text("select pg_current_wal_insert_lsn()::text").await;
    registry.sql("commit").await;
    registry.until_all_handed_off().await;
    daemon.signal("TERM");
    daemon.end("told to end").await;
    let left = format!(
        "select ('{here}'::pg_lsn - confirmed_flush_lsn)::bigint from pg_replication_slots where slot_name = '{slot}'"
    );
    assert!(registry.number(&left).await <= 0, "{} bytes are sent again", registry.number(&left).await);
    let lost = "select count(*) from system_issues where issue_kind = 'slot_lost'";
    assert_eq!(registry.number(lost).await, 0, "our record is ahead of the slot, never behind");
}

#[tokio::test]
async fn a_poller_killed_around_apply_neither_loses_nor_doubles() {
    let registry = active().await;
    for step in ["keyset_before_apply", "keyset_after_apply"] {
        for time in [1, 3] {
            dies_at(&registry, "poll", &format!("{step}:{time}")).await;
            let _daemon = registry.daemon("poll", &[]);
            registry.until_all_handed_off().await;
        }
    }
}

#[tokio::test]
async fn a_frontier_pass_killed_around_its_advance_neither_loses_nor_doubles() {
    let registry = active().await;
    let foreign = "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system)
                   select 'iu', 'iu.born', 'birth', 'iu:' || g, 'a', 's' from generate_series(1, 30) g";
    let missing = "select count(*) from event_outbox f where f.event_domain = 'iu' and
                   (select count(*) from verify.handoffs o where o.event_domain = 'governance'
                      and o.event_subject_table = 'event_outbox' and o.safe_payload ->> 'source_key' = f.id::text) <> 1";
    for failpoint in ["frontier_before_advance:1", "frontier_after_advance:1", "frontier_before_advance:3"] {
        registry.sql(foreign).await;
        registry.daemon("poll", &[("GOV_HANDOFF_FAILPOINT", failpoint)]).dies_at(failpoint).await;
        registry.sql(foreign).await;
        let _daemon = registry.daemon("poll", &[]);
        until("each foreign event is signalled once", async || registry.number(missing).await == 0).await;
    }
}

#[tokio::test]
async fn a_process_killed_after_setting_poison_aside_hands_off_the_rest() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        // Longer than an index entry may be: the database refuses its mark.
        registry
            .sql("insert into birth_registry (entity_code, collection_name)
                  select case when g = 7 then (select string_agg(md5(i::text), '') from generate_series(1, 400) i) else 'e' || g end, 'c'
                    from generate_series(1, 40) g")
            .await;
        registry.daemon(mode, &[("GOV_HANDOFF_FAILPOINT", "after_bisect:1")]).dies_at("after_bisect:1").await;
        let daemon = registry.daemon(mode, &[]);
        registry.until_all_handed_off().await;
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter").await, 1, "{mode}");
        assert_eq!(registry.number("select count(*) from verify.handoffs").await, 39, "{mode}");
        drop(daemon);
    }
}

#[tokio::test]
async fn random_kills_under_writers_neither_lose_nor_double() {
    let seed = seed();
    println!("GOV_HANDOFF_TEST_SEED={seed}");
    let registry = active().await;
    witness(&registry).await;
    let mut dice = Random::new(seed);
    under_writers(&registry.url, seed, 3, async {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            let mode = ["auto", "auto", "stream", "poll"][usize::try_from(dice.below(4)).expect("small")];
            let batch = ["7", "5000"][usize::try_from(dice.below(2)).expect("small")];
            let mut daemon = registry.daemon(mode, &[("GOV_HANDOFF_BATCH_ROWS", batch)]);
            // The kill comes at any moment from before it has the lease to well into its work.
            tokio::time::sleep(Duration::from_millis(700 + dice.below(2_000))).await;
            daemon.kill();
        }
    })
    .await;
    assert!(assert_acknowledged_is_recorded(&registry).await > 0, "the stream had its share");
    let daemon = registry.daemon("auto", &[]);
    registry.until_all_handed_off().await;
    assert!(registry.verdict().await.expected > 500, "the writers wrote");
    drop(daemon);
}

async fn restart(cluster: &Arc<Cluster>, mode: StopMode) -> Duration {
    let cluster = Arc::clone(cluster);
    blocking(move || {
        let begun = Instant::now();
        cluster.stop(mode).expect("stop");
        let took = begun.elapsed();
        cluster.start_again().expect("start again");
        took
    })
    .await
}

/// Waits until the writers' rows come by the stream; asked over a new connection, because the server was away.
async fn until_streamed(url: &str) {
    let client = connect(url).await;
    let streamed = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = 'stream'";
    let before = number(&client, streamed).await;
    until("rows are streamed", async || number(&client, streamed).await >= before + 100).await;
}

/// Waits until the writers have found the server again.
async fn until_written(url: &str) {
    let client = connect(url).await;
    let births = "select count(*) from birth_registry";
    let before = number(&client, births).await;
    until("births are written", async || number(&client, births).await >= before + 20).await;
}

#[tokio::test]
async fn immediate_stops_of_the_server_in_mid_stream_neither_lose_nor_double() {
    let seed = seed();
    println!("GOV_HANDOFF_TEST_SEED={seed}");
    let cluster = Arc::new(private_cluster(options()).await);
    let registry = active_on(&cluster).await;
    let mut daemon = registry.daemon("auto", &[]);
    registry.until_streaming().await;
    for round in 0..3 {
        under_writers(&registry.url, seed + round, 3, async {
            until_streamed(&registry.url).await;
            restart(&cluster, StopMode::Immediate).await;
            until_written(&registry.url).await;
        })
        .await;
        recovered(&registry.url).await;
        assert!(daemon.has_ended().is_none(), "the daemon recovers by itself: {}", daemon.log());
    }
}

/// All is handed off, and by the stream again; asked over a new connection, because the server was away.
async fn recovered(url: &str) {
    let client = connect(url).await;
    until_all_handed_off(&client).await;
    let mode = "select count(*) from queue_heartbeat where metadata ->> 'mode' = 'stream'";
    until("it streams again", async || number(&client, mode).await == 1).await;
}

#[tokio::test]
async fn a_fast_stop_is_not_held_up_by_the_stream() {
    let cluster = Arc::new(private_cluster(options()).await);
    let registry = active_on(&cluster).await;
    let mut daemon = registry.daemon("auto", &[]);
    registry.until_streaming().await;
    for round in 0..2 {
        under_writers(&registry.url, round, 2, async {
            until_streamed(&registry.url).await;
            let took = restart(&cluster, StopMode::Fast).await;
            assert!(took < Duration::from_secs(6), "the server waited {took:?} for our acknowledgement");
        })
        .await;
        recovered(&registry.url).await;
        assert!(daemon.has_ended().is_none(), "{}", daemon.log());
    }
    // Idle as well: then only the answer to a keepalive tells the server that we have everything.
    let took = restart(&cluster, StopMode::Fast).await;
    assert!(took < Duration::from_secs(6), "the server waited {took:?} for an idle stream");
    recovered(&registry.url).await;
}

/// The stop signal comes while a batch is being applied. The daemon waits for the batch, acknowledges it, gives the lease back
/// and ends; nothing of the batch is left to a successor.
#[tokio::test]
async fn a_stop_signal_drains_and_exits_cleanly() {
    for mode in ["stream", "poll"] {
        let registry = active().await;
        // With a lease of a second the write that waits below would be ended; the tables behind the stream are left alone.
        let settings = [("GOV_HANDOFF_LEASE_TTL", "15s"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")];
        let mut daemon = registry.daemon(mode, &settings);
        daemon.captures(&registry.url, mode).await;
        registry.births("before", 1).await;
        registry.until_all_handed_off().await;
        let blocker = connect(&registry.url).await;
        blocker.batch_execute("begin; lock table event_outbox in share mode").await.expect("a lock");
        registry.births("held", 100).await;
        let applies = "select count(*) > 0 from pg_stat_activity where datname = current_database()
                          and wait_event_type = 'Lock' and query like '%gov_handoff_apply%'";
        registry.until(applies).await;
        daemon.signal("TERM");
        daemon.says("asked to stop, draining").await;
        assert!(daemon.has_ended().is_none(), "{mode}: it left a batch under way: {}", daemon.log());
        assert!(registry.verdict().await.missing >= 100, "{mode}: the batch is under way");
        blocker.batch_execute("rollback").await.expect("the lock is free");
        assert_eq!(daemon.end("SIGTERM").await.code(), Some(0), "{}", daemon.log());
        let verdict = registry.verdict().await;
        assert_eq!((verdict.missing, verdict.twice), (0, 0), "{mode}: drained, and by nobody else");
        let free = "select count(*) from queue_heartbeat where executor_name = 'gov_handoff_intake' and lease_owner is null";
        assert_eq!(registry.number(free).await, 1, "{mode}: the lease is given back");
        if mode == "stream" {
            // By what the slot holds and not by a position: other tests write to the same log.
            let again = format!(
                "select count(*) from pg_logical_slot_peek_binary_changes('{}', null, null,
                    'proto_version', '1', 'publication_names', 'gov_handoff') where position('held'::bytea in data) > 0",
                registry.slot()
            );
            assert_eq!(registry.number(&again).await, 0, "something of it would be sent again");
            registry.births("held again", 2).await;
            assert_eq!(registry.number(&again).await, 2, "the slot is asked for what it would send");
        }
    }
}
