//! The job queue against pgmq's semantics in SQL of our own, in the same database and the same run; and whether it stays as fast
//! while another session holds a snapshot or a transaction id.

mod consume;
mod hold;
mod pickup;

use super::options::Options;
use super::report::Report;
use super::world::World;
use serde_json::json;
use tokio_postgres::Client;

const DATABASE: &str = "jobs";
/// Two consumers, each with an executor of its own.
const CONSUMERS: [&str; 2] = ["e0", "e1"];
/// How many times each side of a comparison is measured, in turns; the median counts.
const ROUNDS: usize = 5;

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let client = world.install(DATABASE).await;
    client.batch_execute(include_str!("peer.sql")).await.expect("the peer");
    claim(&client, "e0", &Held::default(), 1).await.finish(&client).await;
    consume::produce(world, options, report).await;
    for batch in [100, 10, 1] {
        consume::consume(world, options, report, batch).await;
    }
    pickup::measure(world, report).await;
    for hold in [hold::SNAPSHOT, hold::XID] {
        hold::measure(world, options, report, hold).await;
    }
    drop(client);
    world.drop(DATABASE).await;
}

/// The jobs that a consumer holds, with their tokens.
#[derive(Default)]
struct Held {
    ids: Vec<uuid::Uuid>,
    tokens: Vec<i64>,
}

impl Held {
    async fn finish(&self, client: &Client) {
        let call = "select job_id, outcome from fn_job_complete($1, $2)";
        let answers = client.query(call, &[&self.ids, &self.tokens]).await.expect("an answer for each job");
        assert!(answers.iter().all(|row| row.get::<_, &str>(1) == "done"), "every job is finished");
    }
}

/// One statement, one commit: finishes what is held, and claims and starts the next jobs.
async fn claim(client: &Client, executor: &str, held: &Held, limit: i32) -> Held {
    let call = "select c.job_id, c.token, c.job_kind, c.event_domain, c.payload_ref, c.safe_payload, c.attempt, c.lease_until::text, \
                       c.deadline_at::text \
                  from (select count(*) from fn_job_complete($1, $2)) d (finished), \
                       lateral fn_job_claim($3, $4 + (d.finished * 0)::int, '30 seconds', true) c";
    let rows = client.query(call, &[&held.ids, &held.tokens, &executor, &limit]).await.expect("a claim");
    Held {
        ids: rows.iter().map(|row| row.get(0)).collect(),
        tokens: rows.iter().map(|row| row.get(1)).collect(),
    }
}

/// New jobs, or the same as messages of the peer.
fn jobs(prefix: &str, n: u32) -> serde_json::Value {
    (0..n)
        .map(|i| json!({"kind": "k", "key": format!("{prefix}:{i}"), "executor": "Agent", "payload_ref": format!("piece:{i}")}))
        .collect()
}

async fn put(client: &Client, prefix: &str, n: u32) {
    let call = "select count(*) from fn_job_enqueue_many($1)";
    client.query_one(call, &[&jobs(prefix, n)]).await.expect("new jobs");
}

async fn beat(client: &Client) {
    client
        .batch_execute("select fn_executor_heartbeat(e) from unnest('{e0, e1}'::text[]) e")
        .await
        .expect("a heartbeat");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
