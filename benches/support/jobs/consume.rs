//! Enqueueing in batches of a thousand, and claiming and finishing with two consumers.

use super::{CONSUMERS, DATABASE, Held, ROUNDS, beat, claim, jobs, median, put};
use crate::support::options::Options;
use crate::support::report::{Goal, Report};
use crate::support::world::{World, settle};
use std::time::Instant;
use tokio_postgres::Client;

/// Bytes of log and commits that one job took.
struct Cost {
    bytes: f64,
    commits: f64,
}

async fn counters(client: &Client) -> (i64, i64) {
    let sql = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, xact_commit \
                 from pg_stat_database where datname = current_database()";
    // A backend reports what it did at the latest when the next look forces it.
    client.batch_execute("select pg_stat_force_next_flush()").await.expect("a flush");
    let row = client.query_one(sql, &[]).await.expect("counters");
    (row.get(0), row.get(1))
}

fn cost(before: (i64, i64), after: (i64, i64), jobs: u32) -> Cost {
    Cost {
        bytes: (after.0 - before.0) as f64 / f64::from(jobs),
        commits: (after.1 - before.1) as f64 / f64::from(jobs),
    }
}

pub async fn produce(world: &World, options: &Options, report: &mut Report) {
    const BATCH: u32 = 1_000;
    let batches = if options.quick { 5 } else { 20 };
    let client = world.client(DATABASE).await;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    let mut bytes = (0.0, 0.0);
    for round in 0..ROUNDS {
        let documents: Vec<_> =
            (0..batches).map(|batch| jobs(&format!("enqueue{round}:{batch}"), BATCH)).collect();
        for ours_now in [true, false] {
            settle(&client).await;
            let call = if ours_now {
                "select * from fn_job_enqueue_many($1)"
            } else {
                "select * from peer_send($1)"
            };
            let statement = client.prepare(call).await.expect("prepare");
            let before = counters(&client).await;
            let started = Instant::now();
            for document in &documents {
                client.query(&statement, &[document]).await.expect("new jobs");
            }
            let rate = f64::from(batches * BATCH) / started.elapsed().as_secs_f64();
            let cost = cost(before, counters(&client).await, batches * BATCH);
            if ours_now {
                ours.push(rate);
                bytes.0 = cost.bytes;
            } else {
                peer.push(rate);
                bytes.1 = cost.bytes;
            }
        }
        empty(&client).await;
    }
    report.add("jobs: enqueue by 1000", "jobs/s", median(ours), median(peer), Goal::AtLeast(0.5));
    report.note(format!("jobs: enqueue writes {:.0} bytes of log a job, the peer {:.0}", bytes.0, bytes.1));
}

/// Takes all that is left out of both queues.
async fn empty(client: &Client) {
    beat(client).await;
    let mut held = Held::default();
    loop {
        held = claim(client, "e0", &held, 10_000).await;
        if held.ids.is_empty() {
            break;
        }
    }
    client.batch_execute("truncate peer_queue").await.expect("an empty peer");
}

/// Who consumes, and in how many commits.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Visibility timeout, then delete: two commits a batch.
    Peer,
    /// Finishes a batch and claims the next one in one commit.
    OneCommit,
    /// A commit for the claim, which starts the jobs, and one for their end.
    TwoCommits,
}

pub async fn consume(world: &World, options: &Options, report: &mut Report, batch: i32) {
    let total = match batch {
        100 => 40_000,
        10 => 10_000,
        _ => 2_000,
    };
    let total = if options.quick { total / 4 } else { total };
    let ways = [Way::Peer, Way::OneCommit, Way::TwoCommits];
    let mut rates = [const { Vec::new() }; 3];
    let mut costs = [const { None }; 3];
    let client = world.client(DATABASE).await;
    for round in 0..ROUNDS {
        for (n, way) in ways.into_iter().enumerate() {
            for part in 0..total / 500 {
                let prefix = format!("{batch}:{round}:{n}:{part}");
                if way == Way::Peer {
                    client
                        .query("select * from peer_send($1)", &[&jobs(&prefix, 500)])
                        .await
                        .expect("messages");
                } else {
                    put(&client, &prefix, 500).await;
                }
            }
            settle(&client).await;
            beat(&client).await;
            let mut consumers = Vec::new();
            for executor in CONSUMERS {
                consumers.push((executor, world.client(DATABASE).await));
            }
            let before = counters(&client).await;
            let started = Instant::now();
            let running: Vec<_> = consumers
                .into_iter()
                .map(|(executor, client)| {
                    tokio::spawn(async move { run(&client, executor, way, batch).await })
                })
                .collect();
            let mut finished = 0;
            for consumer in running {
                finished += consumer.await.expect("a consumer");
            }
            let took = started.elapsed();
            assert_eq!(finished, total, "every job is finished once");
            rates[n].push(f64::from(total) / took.as_secs_f64());
            costs[n] = Some(cost(before, counters(&client).await, total));
        }
    }
    let [peer, one, two] = rates.map(median);
    let name = match batch {
        100 => "jobs: consume by 100",
        10 => "jobs: consume by 10",
        _ => "jobs: consume singly",
    };
    report.add(name, "jobs/s", one, peer, Goal::AtLeast(1.0));
    report.note(format!("{name}: in two commits a batch {two:.0} jobs/s, {:.2} of the peer", two / peer));
    for (who, cost) in ["the peer", "one commit", "two commits"].into_iter().zip(costs.iter().flatten()) {
        report.note(format!(
            "{name}: {who}: {:.0} bytes of log and {:.3} commits a job",
            cost.bytes, cost.commits
        ));
    }
}

/// Consumes until nothing is left. Returns how many.
async fn run(client: &Client, executor: &str, way: Way, batch: i32) -> u32 {
    let mut finished = 0;
    let mut held = Held::default();
    loop {
        match way {
            Way::Peer => {
                let rows =
                    client.query("select * from peer_read(30, $1)", &[&batch]).await.expect("messages");
                let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                if ids.is_empty() {
                    return finished;
                }
                let gone = client.query("select * from peer_delete($1)", &[&ids]).await.expect("deleted");
                finished += gone.len() as u32;
            }
            Way::OneCommit => {
                finished += held.ids.len() as u32;
                held = claim(client, executor, &held, batch).await;
                if held.ids.is_empty() {
                    return finished;
                }
            }
            Way::TwoCommits => {
                let taken = claim(client, executor, &Held::default(), batch).await;
                if taken.ids.is_empty() {
                    return finished;
                }
                taken.finish(client).await;
                finished += taken.ids.len() as u32;
            }
        }
    }
}
