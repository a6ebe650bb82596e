//! The client of the job queue, for programs in Rust. What a job is, and what is guaranteed: `docs/jobs.md`.
//!
//! A [`Producer`] enqueues. An [`Executor`] claims jobs, works, and says what became of them:
//!
//! ```text
//!   claim ──▶ start ──▶ work ──▶ complete, fail, reject or release
//!               └─ heartbeat ─┘
//! ```
//!
//! Each claim has a token. Every later call shows it, and a call whose token is no longer the job's changes nothing:
//! [`Reply::Stale`]. So of two executors that hold the same job, because the first one was away for longer than its lease, only the
//! second one can finish it. A job succeeds once; its work may be done more than once.
//!
//! A program that enqueues, and one that runs jobs until it is interrupted:
//!
//! ```no_run
//! use gov_handoff::queue::{Executor, ExecutorKind, NewJob, Ending, Producer};
//!
//! # async fn program() -> gov_handoff::error::Result<()> {
//! let producer = Producer::connect(None).await?;
//! producer.enqueue(&NewJob::new("verify_mark", "verify:draft-10", ExecutorKind::Hermes)).await?;
//!
//! let mut executor = Executor::connect(None, "hermes_batch_a").await?;
//! let interrupted = async { drop(tokio::signal::ctrl_c().await) };
//! let tally = executor
//!     .run(4, interrupted, |job| async move {
//!         println!("{} of {:?}", job.kind, job.payload_ref);
//!         Ending::done()
//!     })
//!     .await?;
//! println!("{} jobs succeeded", tally.succeeded);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/executor.rs` is such a program. The pieces are there for a loop of one's own:
//!
//! ```no_run
//! # async fn program(executor: gov_handoff::queue::Executor) -> gov_handoff::error::Result<()> {
//! use gov_handoff::queue::Reply;
//!
//! let jobs = executor.wait(10).await?;
//! executor.start(&jobs).await?;
//! for (job, answer) in executor.complete(&jobs, &serde_json::json!({ "run": "batch-7" })).await? {
//!     match answer {
//!         Reply::Done => println!("{job} succeeded"),
//!         Reply::Stale(why) => println!("{job} is not ours any more: {why}"),
//!         Reply::Refused(why) => println!("{job}: {why}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! To enqueue in a transaction of your own, call `fn_job_enqueue` in it: the job is there when the transaction has committed.

mod executor;
mod producer;
mod run;
mod work;

pub use crate::core::job::{Enqueued, ExecutorKind, Job, NewJob, NotAnExecutor, Reply, Token};
pub use executor::Executor;
pub use producer::Producer;
pub use work::{Ending, RunTally};

use crate::config::Target;
use crate::error::Result;
use crate::store::role::Writer;
use crate::store::{Session, connect};
use std::time::Duration;

/// How long the server may take to answer. Every gate is short.
const ANSWER: Duration = Duration::from_secs(30);

async fn open(target: &Target, name: &str) -> Result<Session<Writer>> {
    Ok(connect::open_within(target, name, ANSWER).await?.into_role())
}
