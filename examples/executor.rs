//! An executor: it claims jobs, works, keeps their leases, and completes them until it is interrupted. It may be killed at any
//! moment: its jobs go to others when their leases end, and what it did not complete is done again.
//!
//! ```text
//! gov-handoff executors register hermes_batch_a --kind Hermes --job-kind verify_mark --max-parallel 4
//! DATABASE_URL=postgres://hermes@host/database cargo run --example executor -- hermes_batch_a 4
//! ```
//!
//! The work of this example is to wait for as long as the payload says (`{"milliseconds": 50}`).

use gov_handoff::error::Result;
use gov_handoff::queue::{Ending, Executor, Job};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        eprintln!("usage: executor ID [JOBS-AT-A-TIME] [LEASE-SECONDS]");
        return ExitCode::from(2);
    };
    let parallel = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let lease = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(30);
    match execute(&name, parallel, Duration::from_secs(lease)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {}", e.told());
            ExitCode::from(e.kind.exit_code())
        }
    }
}

pub async fn execute(name: &str, parallel: usize, lease: Duration) -> Result<()> {
    let mut executor = Executor::connect(None, name).await?.lease(lease);
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    let tally = executor.run(parallel, interrupted, work).await?;
    println!(
        "{} jobs succeeded, {} failed, {} were lost to another claim",
        tally.succeeded, tally.failed, tally.lost
    );
    Ok(())
}

/// The work of one job. It may be cut off at any `await`, and it may be done twice: a kill between the work and the completion
/// is one after which the job is done again. So the work must be such that doing it again does no harm, or must show the token to what
/// it writes to, which then refuses an older token than it has seen.
async fn work(job: Job) -> Ending {
    println!("{} {} attempt {} token {}", job.id, job.kind, job.attempt, job.token);
    let Some(milliseconds) = job.payload.get("milliseconds").and_then(serde_json::Value::as_u64) else {
        // However often it is tried, this job will not have what it needs.
        return Ending::Reject("the payload says no number of milliseconds".to_owned());
    };
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    Ending::Done(json!({ "waited": milliseconds }))
}
