//! Claims jobs, and says what became of them.

use super::{Job, Reply, open};
use crate::config::{self, Target};
use crate::error::{Error, Result};
use crate::store::Session;
use crate::store::role::Writer;
use serde_json::Value;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(5);
/// An executor that was not heard of for a minute (`job.executor.silent_ms`) may not claim, and loses its jobs.
pub(super) const BEAT: Duration = Duration::from_secs(5);

/// A session that acts for one registered executor. Its role needs `gov_handoff_executor`.
pub struct Executor {
    target: Target,
    pub(super) name: String,
    pub(super) lease: Duration,
    pub(super) poll: Duration,
    pub(super) session: Session<Writer>,
    /// When the last heartbeat was sent.
    beaten: Mutex<Instant>,
}

impl Executor {
    /// Connects to this URL; without one, as `DATABASE_URL` and the `PG*` variables say. Sends a heartbeat, and listens for jobs.
    ///
    /// An operator has registered and subscribed the executor before: `gov-handoff executors register`.
    pub async fn connect(url: Option<&str>, executor: &str) -> Result<Self> {
        let target = config::target(url)?;
        let session = enter(&target, executor).await?;
        let (name, beaten) = (executor.to_owned(), Mutex::new(Instant::now()));
        Ok(Self { target, name, lease: LEASE, poll: POLL, session, beaten })
    }

    /// How long a claim lasts without a heartbeat: 100 ms to a day. The default is 30 seconds.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often to look for jobs where no notification arrives, as behind a pooler. The default is 5 seconds.
    #[must_use]
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// The id under which the executor is registered.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says that the executor lives. [`claim`](Self::claim) does so by itself.
    pub async fn beat(&self) -> Result<()> {
        self.session.executor_beat(&self.name).await?;
        self.note_beat();
        Ok(())
    }

    /// Claims up to `limit` jobs that are ready now: the highest priority first, then the oldest. They are leased and not started
    /// yet. None is returned where there is none, or where a subscription is at its limit.
    pub async fn claim(&self, limit: usize) -> Result<Vec<Job>> {
        self.claim_as(limit, false).await
    }

    /// As [`claim`](Self::claim) and [`start`](Self::start), in one call and one commit.
    pub async fn claim_started(&self, limit: usize) -> Result<Vec<Job>> {
        self.claim_as(limit, true).await
    }

    async fn claim_as(&self, limit: usize, start: bool) -> Result<Vec<Job>> {
        if self.since_beat() >= BEAT {
            self.beat().await?;
        }
        self.session.claim_jobs(&self.name, limit, self.lease, start).await
    }

    /// As [`claim`](Self::claim), and waits until there is a job: for a notification, or for the next poll.
    pub async fn wait(&self, limit: usize) -> Result<Vec<Job>> {
        loop {
            let jobs = self.claim(limit).await?;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
            tokio::select! {
                () = self.session.woken() => {}
                () = tokio::time::sleep(self.poll) => {}
            }
        }
    }

    /// The work begins: `leased` to `in_progress`. Only a started job can succeed or fail.
    pub async fn start(&self, jobs: &[Job]) -> Result<Vec<(Uuid, Reply)>> {
        let (ids, tokens) = pairs(jobs);
        self.session.start_jobs(&ids, &tokens).await
    }

    /// Extends the leases, and says that the executor lives. A job that is answered [`Reply::Stale`] is not the caller's any more:
    /// stop working on it.
    pub async fn heartbeat(&self, jobs: &[Job]) -> Result<Vec<(Uuid, Reply)>> {
        let (ids, tokens) = pairs(jobs);
        self.heartbeat_pairs(&ids, &tokens).await
    }

    pub(super) async fn heartbeat_pairs(&self, ids: &[Uuid], tokens: &[i64]) -> Result<Vec<(Uuid, Reply)>> {
        let answers = self.session.heartbeat_jobs(&self.name, ids, tokens, self.lease).await?;
        self.note_beat();
        Ok(answers)
    }

    /// The jobs succeeded. The evidence is kept with each: references, not contents.
    pub async fn complete(&self, jobs: &[Job], evidence: &Value) -> Result<Vec<(Uuid, Reply)>> {
        let (ids, tokens) = pairs(jobs);
        self.session.complete_jobs(&ids, &tokens, evidence).await
    }

    /// The attempt failed. The job waits for its next one, or is a dead letter when it has had all of them.
    pub async fn fail(&self, job: &Job, error: &str) -> Result<Reply> {
        self.session.fail_job(job.id, job.token, error, true).await
    }

    /// The job cannot succeed, however often it is tried: it is a dead letter at once.
    pub async fn reject(&self, job: &Job, error: &str) -> Result<Reply> {
        self.session.fail_job(job.id, job.token, error, false).await
    }

    /// Gives jobs back for others to claim; that costs no attempt.
    pub async fn release(&self, jobs: &[Job]) -> Result<Vec<(Uuid, Reply)>> {
        let (ids, tokens) = pairs(jobs);
        self.session.release_jobs(&ids, &tokens).await
    }

    /// A new session after an error that a retry may cure. A session that still works is kept.
    pub(super) async fn recover(&mut self, after: &Error) -> Result<()> {
        if self.session.is_closed() || after.kind == crate::error::Kind::Connection {
            self.session = enter(&self.target, &self.name).await?;
            self.note_beat();
        }
        Ok(())
    }

    fn note_beat(&self) {
        if let Ok(mut beaten) = self.beaten.lock() {
            *beaten = Instant::now();
        }
    }

    fn since_beat(&self) -> Duration {
        self.beaten.lock().map_or(BEAT, |beaten| beaten.elapsed())
    }
}

/// Opens a session, says that the executor lives, and listens before the first look: a job that is enqueued in between wakes it.
async fn enter(target: &Target, executor: &str) -> Result<Session<Writer>> {
    let session = open(target, "gov-handoff executor").await?;
    session.executor_beat(executor).await.map_err(|e| e.context(format_args!("executor {executor}")))?;
    session.listen_to_jobs().await?;
    Ok(session)
}

fn pairs(jobs: &[Job]) -> (Vec<Uuid>, Vec<i64>) {
    jobs.iter().map(|job| (job.id, job.token.0)).unzip()
}
