//! How long a job waits for an idle executor: from the producer's commit until the executor has the job.

use super::{DATABASE, Held, beat, claim, median, put};
use crate::support::report::{Goal, Report};
use crate::support::world::World;
use futures_util::StreamExt;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

const TIMES: usize = 200;
const POLL: Duration = Duration::from_millis(100);
/// The executor is idle before each job.
const IDLE: Duration = Duration::from_millis(15);

/// A session that listens, and what it hears.
async fn listener(world: &World) -> (Client, mpsc::UnboundedReceiver<()>) {
    let (client, mut connection) =
        tokio_postgres::connect(&world.url(DATABASE), NoTls).await.expect("connect");
    let (heard, hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if matches!(message, AsyncMessage::Notification(_)) && heard.send(()).is_err() {
                return;
            }
        }
    });
    client.batch_execute("listen gov_job").await.expect("listen");
    (client, hears)
}

pub async fn measure(world: &World, report: &mut Report) {
    let producer = world.client(DATABASE).await;
    beat(&producer).await;
    let commit = commits(&producer).await;
    let (executor, mut hears) = listener(world).await;
    let mut held = Held::default();
    let mut notified = Vec::new();
    for n in 0..TIMES {
        tokio::time::sleep(IDLE).await;
        while hears.try_recv().is_ok() {}
        put(&producer, &format!("notified:{n}"), 1).await;
        let committed = Instant::now();
        loop {
            hears.recv().await.expect("a notification");
            held = claim(&executor, "e0", &held, 1).await;
            if !held.ids.is_empty() {
                break;
            }
        }
        notified.push(milliseconds(committed.elapsed()));
        held.finish(&executor).await;
        held = Held::default();
        if n % 50 == 0 {
            beat(&producer).await;
        }
    }
    report.add("jobs: idle pick-up, notified", "ms", median(notified), commit, Goal::AtMost(3.0));
    polled(world, report, &producer).await;
}

/// Without notifications, by an executor that polls.
async fn polled(world: &World, report: &mut Report, producer: &Client) {
    let executor = world.client(DATABASE).await;
    let (took, takes) = std::sync::mpsc::channel();
    beat(producer).await;
    let polling = tokio::spawn(async move {
        let mut held = Held::default();
        for _ in 0..20 {
            loop {
                tokio::time::sleep(POLL).await;
                held = claim(&executor, "e1", &held, 1).await;
                if !held.ids.is_empty() {
                    break;
                }
            }
            took.send(Instant::now()).expect("somebody waits");
        }
        held.finish(&executor).await;
    });
    let mut waits = Vec::new();
    for n in 0..20 {
        put(producer, &format!("polled:{n}"), 1).await;
        let committed = Instant::now();
        let at = loop {
            match takes.try_recv() {
                Ok(at) => break at,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        waits.push(milliseconds(at.saturating_duration_since(committed)));
    }
    polling.await.expect("the polling executor");
    report.add("jobs: idle pick-up, polled", "ms", median(waits), milliseconds(POLL), Goal::AtMost(1.1));
}

/// One commit of one row, in milliseconds.
async fn commits(client: &Client) -> f64 {
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let started = Instant::now();
        client.execute("insert into peer_commit values (1)", &[]).await.expect("a commit");
        took.push(milliseconds(started.elapsed()));
    }
    median(took)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
