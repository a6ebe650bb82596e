//! From a birth's commit to its durable handoff, at a steady 200 commits a second.
//!
//! Both ends are read from one clock, the server's: with `track_commit_timestamp` it records when each transaction wrote
//! its commit, just before flushing it. So a birth's own flush is in the difference and the handoff's is not; they are one
//! flush each, and the difference is the time from durable birth to durable handoff.

use crate::support::options::Options;
use crate::support::process::{Daemon, run};
use crate::support::report::{Goal, Report};
use crate::support::world::{World, births, settle};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const COMMITS_PER_SECOND: u32 = 200;
/// Writers take turns, so that one slow commit does not hold the next one back.
const WRITERS: usize = 4;
/// Commits before those that count, for caches and plans.
const WARM_UP: u32 = 400;
/// Commits that the limit is the median of.
const ROUND_TRIPS: u32 = 1_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// What one daemon took for a steady stream of births.
pub struct Steady {
    pub p50: f64,
    p99: f64,
    max: f64,
    pub resident_kib: u64,
    before: (f64, f64),
    after: (f64, f64),
}

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let rows = commits(options.seconds);
    let steady = steadily(world, options.seconds, "live", "gov_handoff_intake,gov_event_feed", "").await;
    let Steady { p50, p99, max, resident_kib, before, after } = steady;
    // The lower of before and after, which is the stricter limit.
    let (limit, hot) = (before.0.min(after.0), before.1.min(after.1));
    report.note(format!(
        "latency: {rows} commits, worst {max:.2} ms; a commit's round trip at the births' rate {:.3} and {:.3} ms; back to back \
         {hot:.3} ms, against which p50 is {:.1} and p99 {:.1}",
        before.0,
        after.0,
        p50 / hot,
        p99 / hot
    ));
    report.add("commit to handoff, p50", "ms", p50, limit, Goal::AtMost(3.0));
    report.add("commit to handoff, p99", "ms", p99, limit, Goal::AtMost(10.0));
    report.memory("live stream, memory", resident_kib);
}

fn commits(seconds: u32) -> u32 {
    WARM_UP + seconds * COMMITS_PER_SECOND
}

/// A steady stream of births for some seconds, into a database of its own that `prepare` has changed. The slot is gone afterwards.
pub async fn steadily(world: &World, seconds: u32, database: &str, workers: &str, prepare: &str) -> Steady {
    let rows = commits(seconds);
    let client = world.install(database).await;
    let url = world.url(database);
    client.batch_execute(prepare).await.expect("prepare the database");
    run(&url, &["replication", "setup"]);
    settle(&client).await;
    let before = round_trip(&client).await;
    let daemon = Daemon::start(&url, &["run", "--mode", "stream", "--workers", workers]);
    until(&client, "select exists (select from v_governance_worker where mode = 'stream')").await;
    write_steadily(world, database, rows).await;
    until(
        &client,
        &format!("select count(*) >= {rows} from event_outbox where event_subject_ref is not null"),
    )
    .await;
    let resident_kib = daemon.resident_kib();
    drop(daemon);
    let after = round_trip(&client).await;
    let (p50, p99, max) = distances(&client).await;
    run(&url, &["replication", "teardown"]);
    Steady { p50, p99, max, resident_kib, before, after }
}

/// The medians of a one-row update by primary key and its commit, from a client, with nothing else going on: at the rate
/// of the births, and back to back. The handoff is held against the former: at that rate each commit finds caches cold and a
/// processor asleep, as each birth and each handoff does, and no commit of that rate is faster. Back to back, with everything
/// awake, the same commit takes little more than half of that; the ratio to it is reported beside.
async fn round_trip(client: &Client) -> (f64, f64) {
    let setup = "create table if not exists bench_floor (id int primary key, n int); \
                 insert into bench_floor values (1, 0) on conflict do nothing";
    client.batch_execute(setup).await.expect("a row to update");
    let update = client.prepare("update bench_floor set n = n + 1 where id = $1").await.expect("prepare");
    let mut medians = [0.0; 2];
    for (median, pause) in
        medians.iter_mut().zip([Duration::from_secs(1) / COMMITS_PER_SECOND, Duration::ZERO])
    {
        let mut took = Vec::new();
        let start = Instant::now();
        for n in 0..ROUND_TRIPS {
            tokio::time::sleep_until((start + pause * n).into()).await;
            let begun = Instant::now();
            client.execute(&update, &[&1]).await.expect("update");
            took.push(begun.elapsed().as_secs_f64() * 1_000.0);
        }
        took.sort_by(f64::total_cmp);
        *median = took[took.len() / 2];
    }
    (medians[0], medians[1])
}

async fn write_steadily(world: &World, database: &str, rows: u32) {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let client = world.client(database).await;
        writers.push(tokio::spawn(async move {
            let start = Instant::now();
            for row in (1..=rows).filter(|row| *row as usize % WRITERS == writer) {
                let due = start + Duration::from_secs(1) * row / COMMITS_PER_SECOND;
                tokio::time::sleep_until(due.into()).await;
                client.batch_execute(&births(row, row)).await.expect("write a birth");
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
}

/// Milliseconds between the commits of births and of their handoffs: median, 99th percentile, worst.
async fn distances(client: &Client) -> (f64, f64, f64) {
    let query = "\
        select percentile_cont(0.5) within group (order by d.ms), percentile_cont(0.99) within group (order by d.ms), \
               max(d.ms) \
          from (select extract(epoch from pg_xact_commit_timestamp(o.xmin) - pg_xact_commit_timestamp(b.xmin))::float8 \
                           * 1000 as ms \
                  from birth_registry b \
                  join event_outbox o on o.safe_payload ->> 'source_key' = b.id::text \
                   and o.event_subject_table = 'birth_registry' \
                 where b.id > $1) d";
    let row = client.query_one(query, &[&(WARM_UP as i32)]).await.expect("distances");
    (row.get(0), row.get(1), row.get(2))
}

async fn until(client: &Client, condition: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !client.query_one(condition, &[]).await.expect("a condition").get::<_, bool>(0) {
        assert!(Instant::now() < deadline, "still not so: {condition}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
