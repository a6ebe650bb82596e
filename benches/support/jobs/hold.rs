//! Throughput while another session holds a snapshot or a transaction id, so that the server can remove no dead row.

use super::{CONSUMERS, DATABASE, Held, beat, claim, put};
use crate::support::options::Options;
use crate::support::report::{Goal, Report};
use crate::support::world::{World, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Hold {
    name: &'static str,
    begin: &'static str,
}

pub const SNAPSHOT: Hold = Hold {
    name: "jobs: under a snapshot",
    begin: "begin isolation level repeatable read; select count(*) from job_queue; select count(*) from job_ready",
};
pub const XID: Hold = Hold { name: "jobs: under an open xid", begin: "begin; select pg_current_xact_id()" };

/// The first and the last part of the time, which are compared.
const PART: u64 = 5;
/// Not counted: plans and caches come up.
const WARM_UP: Duration = Duration::from_secs(2);
const BATCH: u32 = 100;

pub async fn measure(world: &World, options: &Options, report: &mut Report, hold: Hold) {
    let client = world.client(DATABASE).await;
    settle(&client).await;
    beat(&client).await;
    let holder = world.client(DATABASE).await;
    holder.batch_execute(hold.begin).await.expect("a hold");
    let seconds = u64::from(options.hold);
    let begun = Instant::now() + WARM_UP;
    let ends = begun + Duration::from_secs(seconds);
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..seconds).map(|_| AtomicU64::new(0)).collect());
    let mut workers = Vec::new();
    for executor in CONSUMERS {
        let client = world.client(DATABASE).await;
        let counts = Arc::clone(&counts);
        let name = hold.name;
        workers.push(tokio::spawn(async move {
            let mut held = Held::default();
            let mut n = 0;
            while Instant::now() < ends {
                n += 1;
                put(&client, &format!("{name}:{executor}:{n}"), BATCH).await;
                held = claim(&client, executor, &held, BATCH as i32).await;
                if let Some(second) = Instant::now().checked_duration_since(begun) {
                    let second = usize::try_from(second.as_secs()).unwrap_or(usize::MAX);
                    if let Some(count) = counts.get(second) {
                        count.fetch_add(held.ids.len() as u64, Ordering::Relaxed);
                    }
                }
            }
            held.finish(&client).await;
        }));
    }
    // What the daemon does meanwhile.
    while Instant::now() < ends {
        beat(&client).await;
        client.batch_execute("select gov_handoff.gov_job_tick()").await.expect("a tick");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    for worker in workers {
        worker.await.expect("a worker");
    }
    holder.batch_execute("rollback").await.expect("the hold ends");
    let rate = |part: &[AtomicU64]| {
        part.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>() as f64 / part.len() as f64
    };
    let part = usize::try_from(PART.min(seconds / 2).max(1)).expect("small");
    let (first, last) = (rate(&counts[..part]), rate(&counts[counts.len() - part..]));
    report.add(hold.name, "jobs/s", last, first, Goal::AtLeast(0.9));
    report.note(format!("{}: enqueue, claim and finish by {BATCH} for {seconds} s; the last {part} s against the first {part} s", hold.name));
}
