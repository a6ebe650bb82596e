//! The feed: each committed event has one position, positions follow the order of commits, and a consumer that brings nothing
//! but a position sees every event exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gov_handoff::embedded::{Cluster, ClusterOptions, StopMode};
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::{
    Daemon, Database, Random, active, active_on, blocking, cli, cli_with, connect, done, migrated, options,
    private_cluster, seed,
};

const BOTH: [(&str, &str); 2] = [
    ("GOV_HANDOFF_WORKERS", "gov_handoff_intake,gov_event_feed"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms"),
];
const FEED: [(&str, &str); 3] = [
    ("GOV_HANDOFF_WORKERS", "gov_event_feed"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms"),
];
const ALL_FED: &str = "select (select count(*) from event_outbox) = (select count(*) from event_feed f join event_outbox o on o.id = f.event_id)
                          and not exists (select from gov_feed_inbox)";
const TYPES: &str = "insert into event_type_registry (event_domain, event_type, event_stream, active) values
    ('iu', 'draft_created', 'review', true), ('dot', 'dot_failed', 'alert', true)";
/// An event that somebody inserts past every gate, with a time of long ago.
const DIRECT: &str = "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system, \
    occurred_at, created_at) select 'kg', 'moved', 'update', 'direct:' || g, 'a', 'live', now() - interval '3 days', \
    now() - interval '3 days' from generate_series(1, 2) g";
const EMIT: &str =
    "select fn_event_emit('iu', 'draft_created', 't', gen_random_uuid(), 'iu:1', 'user:x', 'test')";

/// A database of a cluster of its own, on which transactions can be prepared.
async fn preparing() -> (Arc<Cluster>, Database) {
    let settings = vec![("max_prepared_transactions".to_owned(), "20".to_owned())];
    let cluster = Arc::new(private_cluster(ClusterOptions { settings, ..options() }).await);
    let db = active_on(&cluster).await;
    db.sql(TYPES).await;
    (cluster, db)
}

/// Waits for a certificate of the feed whose pass began after this call. An open transaction holds the frontier back, but not
/// the certificates.
async fn certified_again(db: &Database) {
    let now = db.text("select clock_timestamp()::text").await;
    db.until(&format!(
        "select coalesce((select (certificate ->> 'taken_at')::timestamptz > '{now}' from v_governance_certificate
                           where source_name = 'event_feed'), false)"
    ))
    .await;
}

async fn with_types() -> Database {
    let db = migrated().await;
    db.sql(TYPES).await;
    db
}

/// The feed is the outbox: no event twice, no position without an event, no number left out.
async fn assert_whole(db: &Database) {
    db.until(ALL_FED).await;
    let wrong = "select (select count(*) from (select event_id from event_feed group by 1 having count(*) > 1) d)
                      + (select count(*) from event_feed f where not exists (select from event_outbox o where o.id = f.event_id))
                      + (select coalesce(max(pos), 0) - count(*) from event_feed)";
    assert_eq!(db.number(wrong).await, 0);
    let differing = "select count(*) from event_feed f join event_outbox o on o.id = f.event_id
        where (f.event_domain, f.event_type, f.event_stream, f.event_severity, f.event_subject_table, f.event_subject_ref, f.actor_ref)
              is distinct from (o.event_domain, o.event_type, o.event_stream, o.event_severity, o.event_subject_table,
                                o.event_subject_ref, o.actor_ref)";
    assert_eq!(db.number(differing).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_gets_one_position_whoever_inserted_it() {
    for mode in ["poll", "stream"] {
        let db = active().await;
        db.sql(TYPES).await;
        db.sql(DIRECT).await;
        let mut daemon = Daemon::running(&db, mode, &BOTH).await;
        // Signals of the intake, one by one and as a batch; emitted events; a finding and its end; more behind every gate.
        db.births("one", 1).await;
        db.births("many", 40).await;
        for _ in 0..5 {
            db.sql(EMIT).await;
        }
        db.sql(
            "select gov_handoff.gov_finding_raise('cursor_lag', 'cursor_lag:x', 'warning'); \
                select gov_handoff.gov_finding_resolve('cursor_lag:x', 'test')",
        )
        .await;
        db.sql(DIRECT).await;
        db.until("select count(*) >= 41 + 14 + 5 + 2 + 4 from event_outbox").await;
        db.until("select count(distinct event_subject_ref) = 41 from event_outbox where event_subject_table = 'birth_registry'").await;
        assert_whole(&db).await;
        // The intake gave its signals their positions itself: they never were in the inbox.
        let by_intake = "select attempts_written from gov_worker_cursor where worker_name = 'gov_event_feed' and source_name = 'event_feed'";
        let others =
            "select count(*) from event_outbox where event_subject_table is distinct from 'birth_registry'";
        db.until(&format!("select ({by_intake}) <= ({others})")).await;
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_alone_finds_what_was_inserted_past_every_gate_also_late() {
    let (_cluster, db) = preparing().await;
    let late = connect(&db.url).await;
    late.batch_execute(&format!("begin; {DIRECT}; savepoint a; {DIRECT}")).await.expect("open");
    let prepared = connect(&db.url).await;
    let gid = format!("feed_{}", db.name);
    prepared.batch_execute(&format!("begin; {DIRECT}; prepare transaction '{gid}'")).await.expect("prepared");
    let mut daemon = Daemon::eager(&db.url, "poll", &FEED);
    for round in 1..4 {
        db.sql(DIRECT).await;
        db.until(&format!("select count(*) = {} from event_feed where event_domain = 'kg'", 2 * round)).await;
        // Two certificates that began after it was fed.
        certified_again(&db).await;
    }
    late.batch_execute("commit").await.expect("committed late");
    prepared.batch_execute(&format!("commit prepared '{gid}'")).await.expect("committed");
    db.until("select count(*) = 12 from event_feed where event_domain = 'kg'").await;
    // More at once than a sweep takes.
    db.sql(&DIRECT.replace("generate_series(1, 2)", "generate_series(1, 20100)")).await;
    assert_whole(&db).await;
    assert_eq!(
        db.number("select count(*) from system_issues where issue_kind = 'feed_not_conserved'").await,
        0
    );
    let certified = done(&db.url, &["certificates"]).await;
    assert!(certified.contains("event_feed"), "{certified}");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[test]
fn every_gate_that_inserts_an_event_tells_the_feed() {
    // Its events get their positions from the gates that call it. The probe inserts nothing.
    const ELSEWHERE: [&str; 2] = ["gov_handoff_emit", "gov_handoff_probe"];
    let migrations = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut silent = Vec::new();
    let mut found = 0;
    for entry in std::fs::read_dir(migrations).expect("the migrations") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a migration");
        for function in text.split("create function ").skip(1) {
            let name =
                function.split(['(', ' ']).next().unwrap_or_default().rsplit('.').next().unwrap_or_default();
            if function.contains("insert into public.event_outbox") && !ELSEWHERE.contains(&name) {
                found += 1;
                if !function.contains("gov_handoff.gov_feed_")
                    && !function.contains("insert into public.event_feed")
                {
                    silent.push(name.to_owned());
                }
            }
        }
    }
    assert!(silent.is_empty() && found >= 6, "{silent:?} of {found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_emitted_is_in_the_feed_at_once() {
    let db = with_types().await;
    let slow = [("GOV_HANDOFF_WORKERS", "gov_event_feed"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")];
    let _daemon = Daemon::eager(&db.url, "poll", &slow);
    db.sql(EMIT).await;
    db.until("select count(*) = 1 from event_feed").await;
    let mut took = Vec::new();
    for n in 2..22 {
        // The worker is at rest, and so its pause is at its longest.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let begun = std::time::Instant::now();
        db.sql(EMIT).await;
        while db.number("select count(*) from event_feed").await < n {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        took.push(begun.elapsed());
    }
    took.sort();
    // A worker that only polled would need half its pause, 50 ms, in the middle.
    assert!(took[took.len() / 2] < Duration::from_millis(40), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_feed_workers_that_take_turns_give_no_event_two_positions() {
    let db = with_types().await;
    let mut random = Random::new(seed());
    let mut daemons = [Daemon::eager(&db.url, "poll", &FEED), Daemon::eager(&db.url, "poll", &FEED)];
    for _ in 0..6 {
        for _ in 0..20 {
            db.sql(if random.percent(70) { EMIT } else { DIRECT }).await;
        }
        let i = usize::try_from(random.below(2)).expect("0 or 1");
        daemons[i].kill();
        db.sql(EMIT).await;
        daemons[i] = Daemon::eager(&db.url, "poll", &FEED);
    }
    assert_whole(&db).await;
    let terms =
        "select (metadata ->> 'term')::bigint from queue_heartbeat where executor_name = 'gov_event_feed'";
    assert!(db.number(terms).await >= 2, "the lease changed hands");
    // A holder that lost its lease gives no position.
    let stale = db
        .client
        .query("select * from gov_handoff.gov_feed_add('gov_event_feed', 'nobody', 1, '{}', true, true)", &[])
        .await;
    assert!(format!("{:?}", stale.expect_err("fenced")).contains("GH001"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_behind_retention_is_told_and_one_ahead_of_a_restored_feed_too() {
    let db = active().await;
    let mut settings = BOTH.to_vec();
    settings.push(("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms"));
    let mut daemon = Daemon::running(&db, "poll", &settings).await;
    db.births("old", 9).await;
    db.until("select count(distinct event_subject_ref) = 9 from event_outbox where event_subject_table = 'birth_registry'").await;
    db.until_certified_again("birth_registry").await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let last = "select last from fn_event_feed_head()";
    let before = db.number(last).await;
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    let low = db.number("select low from fn_event_feed_head()").await;
    assert!(low > 0 && low <= before, "{low} {before}");
    assert_eq!(db.number("select count(*) from event_feed f where not exists (select from event_outbox o where o.id = f.event_id)").await, 0);
    let read =
        async |after: &str| db.client.query(&format!("select pos from fn_event_feed({after})"), &[]).await;
    let told = format!("{:?}", read("0").await.expect_err("told"));
    assert!(told.contains("GH003") && told.contains("were retired"), "{told}");
    assert!(read("null").await.expect("what is kept").iter().all(|row| row.get::<_, i64>(0) > 0));
    assert!(read(&low.to_string()).await.is_ok());
    // Numbers are not given again, although the last position may be gone.
    let mut daemon = Daemon::running(&db, "poll", &settings).await;
    db.births("new", 1).await;
    db.until("select exists (select from event_feed where event_subject_table = 'birth_registry')").await;
    assert!(
        db.number("select min(pos) from event_feed where event_subject_table = 'birth_registry'").await
            > before
    );
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let ahead = format!("{:?}", read("999999").await.expect_err("told"));
    assert!(ahead.contains("GH003") && ahead.contains("the feed ends at"), "{ahead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_was_changed_by_hand_is_found_out() {
    let db = with_types().await;
    db.sql(&format!("{DIRECT}; {DIRECT}; {DIRECT}")).await;
    let mut daemon = Daemon::eager(&db.url, "poll", &FEED);
    db.until(ALL_FED).await;
    certified_again(&db).await;
    // A position disappears: it is given again, and somebody is told.
    db.sql("delete from event_feed where pos = 2").await;
    db.until_finding("feed_not_conserved").await;
    db.until("select count(*) = 6 and max(pos) = 7 from event_feed").await;
    db.until("select exists (select from gov_certificate_log where source_name = 'event_feed' and certificate #>> '{repaired,vanished}' = '1')")
        .await;
    // An event disappears: its position stays, and somebody is told.
    db.sql("delete from event_outbox where id = (select event_id from event_feed where pos = 7)").await;
    let gone = "select detail ->> 'positions_without_event' = '1' and resolved_at is null from system_issues where issue_kind = 'feed_not_conserved'";
    db.until(gone).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    // An audit names both, and repairs what it can.
    let orphan = db.text("select event_id::text from event_feed where pos = 7").await;
    db.sql("delete from event_feed where pos = 3").await;
    let missing = "select o.id::text from event_outbox o where not exists (select from event_feed f where f.event_id = o.id)";
    let missing = db.text(missing).await;
    let checked = cli(&db.url, &["audit", "--full", "--check", "--json"]).await;
    assert_eq!(checked.code, 1, "{}{}", checked.out, checked.err);
    let found: Value = serde_json::from_str(&checked.out).expect("json");
    let feed = found["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .find(|s| s["source"] == "event_feed")
        .expect("the feed");
    let names = |verdict: &str| feed["audit"][verdict].as_array().expect("names").clone();
    assert_eq!(names("missing_keys"), [Value::from(missing)]);
    assert_eq!(names("orphan_keys"), [Value::from(orphan)]);
    assert_eq!(cli(&db.url, &["audit", "--full", "--source", "event_feed"]).await.code, 1);
    let again = audit_of_feed(&db.url).await;
    assert_eq!(
        (again["audit"]["missing"].as_i64(), again["audit"]["orphans"].as_i64()),
        (Some(0), Some(1)),
        "{again}"
    );
}

/// The audit of the feed alone.
async fn audit_of_feed(url: &str) -> Value {
    let ran = cli(url, &["audit", "--full", "--check", "--source", "event_feed", "--json"]).await;
    let found: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
    found["sources"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_follows_prints_where_to_resume_and_needs_no_more_than_an_observer() {
    let db = with_types().await;
    let role = format!("watcher_{}", db.name);
    db.sql(&format!("create role {role} login in role gov_handoff_observer")).await;
    let _daemon = Daemon::eager(&db.url, "poll", &FEED);
    for _ in 0..3 {
        db.sql(EMIT).await;
    }
    db.sql("select fn_event_emit('dot', 'dot_failed', null, null, 'dot:1', 'dot', 'dot')").await;
    db.until("select count(*) = 4 from event_feed").await;
    let observer = db.url_as(&role);
    let tail =
        async |more: &[&str]| done(&observer, &[&["events", "tail", "--no-follow"], more].concat()).await;
    let all = tail(&["--after", "0"]).await;
    assert_eq!(all.lines().count(), 5, "{all}");
    assert!(all.ends_with("resume with --after 4\n"), "{all}");
    assert!(tail(&["--after", "4"]).await.starts_with("resume with --after 4"));
    let one = tail(&["--from-start", "--domain", "dot", "--json"]).await;
    let mut lines = one.lines().map(|line| serde_json::from_str::<Value>(line).expect("json"));
    assert_eq!(lines.next().expect("the event")["canonical_address"], "dot:1");
    assert_eq!(lines.next().expect("the end")["resume_after"], 4);
    assert_eq!(
        tail(&["--from-start", "--type", "draft_created", "--stream", "review", "--limit", "2"])
            .await
            .lines()
            .count(),
        3
    );
    // It follows, and says where to resume when it is asked to end.
    let mut following = crate::support::program(&["events", "tail", "--after", "4"], &[]);
    following.env("DATABASE_URL", &observer).stdout(std::process::Stdio::piped());
    let mut child = following.spawn().expect("starts");
    let mut out = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    db.sql(EMIT).await;
    let (line, mut out) = blocking(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
        (line, out)
    })
    .await;
    assert!(line.trim_start().starts_with("5 "), "{line}");
    crate::support::signal(child.id(), "INT");
    let rest = blocking(move || {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut out, &mut rest).expect("the rest");
        (rest, child.wait().expect("it ends"))
    })
    .await;
    assert_eq!((rest.0.as_str(), rest.1.code()), ("resume with --after 5\n", Some(0)));
    // It is told like any reader.
    let ahead = cli_with(&observer, &["events", "tail", "--no-follow", "--after", "99"], &[]).await;
    assert_eq!(ahead.code, 1, "{}", ahead.err);
    assert!(ahead.err.contains("the feed ends at position 5"), "{}", ahead.err);
}

/// What a consumer recorded: the event of each position, in the order in which it saw them.
type Seen = Vec<(i64, String)>;

/// A consumer: reads by position, and is killed at random between reading a page and recording it, which loses the page.
async fn consume(url: String, mut random: Random, stop: Arc<AtomicBool>) -> Seen {
    let mut seen: Seen = Vec::new();
    loop {
        let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let connection = tokio::spawn(connection);
        let stopping = stop.load(Ordering::Relaxed);
        loop {
            let after = seen.last().map_or(0, |(pos, _)| *pos);
            let limit = i32::try_from(1 + random.below(40)).expect("small");
            let Ok(page) = client
                .query("select pos, event_id::text from fn_event_feed($1, $2)", &[&after, &limit])
                .await
            else {
                break;
            };
            if random.percent(10) {
                break;
            }
            if page.is_empty() && stopping {
                return seen;
            }
            for row in &page {
                let pos: i64 = row.get(0);
                assert!(pos > seen.last().map_or(0, |(pos, _)| *pos), "positions go back");
                seen.push((pos, row.get(1)));
            }
            tokio::time::sleep(Duration::from_millis(random.below(30))).await;
        }
        connection.abort();
    }
}

/// The consumer that a queue table invites: everything created after the latest that was seen.
async fn consume_by_time(url: String, stop: Arc<AtomicBool>) -> BTreeMap<String, ()> {
    let mut seen = BTreeMap::new();
    let mut after = "epoch".to_owned();
    while !stop.load(Ordering::Relaxed) {
        let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::spawn(connection);
        let next = "select id::text, created_at::text from event_outbox where created_at > $1::text::timestamptz order by created_at";
        while let Ok(page) = client.query(next, &[&after]).await {
            for row in &page {
                seen.insert(row.get::<_, String>(0), ());
                after = row.get(1);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    seen
}

/// One random transaction of an emitter.
async fn emit_something(client: &Client, random: &mut Random) -> Result<(), tokio_postgres::Error> {
    let pause = Duration::from_millis(random.below(300));
    let births = "insert into birth_registry (entity_code, collection_name) select 'r' || g, 'c' from generate_series(1, 3) g";
    match random.below(8) {
        0 | 1 => client.batch_execute(EMIT).await,
        2 => client.batch_execute(&format!("begin; {EMIT}; {DIRECT}; rollback")).await,
        3 => {
            client
                .batch_execute(&format!(
                    "begin; {EMIT}; savepoint a; {EMIT}; {DIRECT}; rollback to a; {DIRECT}; savepoint b; {EMIT}; release b; commit"
                ))
                .await
        }
        4 => {
            client.batch_execute(&format!("begin; {EMIT}; savepoint late; {DIRECT}")).await?;
            tokio::time::sleep(pause).await;
            client.batch_execute("commit").await
        }
        5 => {
            let gid = format!("feed_{}", random.next());
            client.batch_execute(&format!("begin; {EMIT}; {DIRECT}; prepare transaction '{gid}'")).await?;
            tokio::time::sleep(pause).await;
            client.batch_execute(&format!("commit prepared '{gid}'")).await
        }
        6 => client.batch_execute(births).await,
        _ => client.batch_execute(DIRECT).await,
    }
}

async fn emit_until(url: String, mut random: Random, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::spawn(connection);
        while !stop.load(Ordering::Relaxed) && emit_something(&client, &mut random).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(random.below(20))).await;
        }
    }
}

/// How often something is killed. `GOV_HANDOFF_TEST_FEED_ROUNDS=60` takes minutes; `make full` runs it.
fn rounds() -> u64 {
    let rounds = std::env::var("GOV_HANDOFF_TEST_FEED_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds.unwrap_or(8)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_consumers_see_every_event_once_while_daemon_slot_and_server_are_killed() {
    let (cluster, mut db) = preparing().await;
    let seed = seed();
    let (emitting, consuming) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let place = |n: u64| Random::new(seed.wrapping_mul(131).wrapping_add(n));
    let emitters: Vec<_> =
        (0..4).map(|n| tokio::spawn(emit_until(db.url.clone(), place(n), Arc::clone(&emitting)))).collect();
    let consumers: Vec<_> = (0..10)
        .map(|n| tokio::spawn(consume(db.url.clone(), place(100 + n), Arc::clone(&consuming))))
        .collect();
    let by_time = tokio::spawn(consume_by_time(db.url.clone(), Arc::clone(&consuming)));

    let mut random = place(7);
    let mut daemon = Daemon::eager(&db.url, "auto", &BOTH);
    for round in 0..rounds() {
        tokio::time::sleep(Duration::from_millis(500 + random.below(1_000))).await;
        match round % 8 {
            2 => {
                daemon.kill();
                db.drop_slots().await;
            }
            5 => {
                let crashing = Arc::clone(&cluster);
                blocking(move || crashing.restart(StopMode::Immediate)).await.expect("the server is back");
                db.reconnect().await;
            }
            _ => daemon.kill(),
        }
        if round % 8 != 5 {
            daemon = Daemon::eager(&db.url, "auto", &BOTH);
        }
    }
    emitting.store(true, Ordering::Relaxed);
    for emitter in emitters {
        emitter.await.expect("an emitter");
    }
    // A crash leaves prepared transactions behind.
    for gid in db.texts("select gid from pg_prepared_xacts").await {
        db.sql(&format!("commit prepared '{gid}'")).await;
    }
    let births = "select (select count(*) from birth_registry) = count(distinct event_subject_ref) from event_outbox \
                  where event_type = 'governance.handoff.object_born'";
    db.until(births).await;
    assert_whole(&db).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    consuming.store(true, Ordering::Relaxed);

    let rows = db
        .client
        .query("select pos, event_id::text from event_feed order by pos", &[])
        .await
        .expect("the feed");
    let feed: Seen = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(feed.len() > 100, "only {} events", feed.len());
    for consumer in consumers {
        let seen = consumer.await.expect("a consumer");
        assert!(seen == feed, "seed {seed}: a consumer saw {} of {} events", seen.len(), feed.len());
    }
    let by_time = by_time.await.expect("the other consumer");
    let lost = feed.iter().filter(|(_, id)| !by_time.contains_key(id)).count();
    println!("by position: 0 of {} events lost; by created_at: {lost}", feed.len());
    assert!(lost > 0, "the baseline lost nothing, so this run proves nothing");
    let audited = cli(&db.url, &["audit", "--full", "--check", "--source", "event_feed"]).await;
    assert_eq!(audited.code, 0, "{}{}", audited.out, audited.err);
}
