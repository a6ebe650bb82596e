//! The keeper: renews the lease, reports the worker's state, emits heartbeats, and makes the worker's rounds. No row
//! waits for any of this.

use crate::core::lease::{claim_patience, keeper_patience};
use crate::daemon::backoff::Pause;
use crate::daemon::complaints::Complaints;
use crate::daemon::open_session::open_claimant;
use crate::daemon::standby::look_around;
use crate::daemon::term::Term;
use crate::error::{Error, Kind, Policy, Result};
use crate::pulse::{self, Loop};
use crate::store::Writer;
use crate::store::lease::{Claim, EXPIRED, Lease};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The longest time between two rounds.
const TICK: Duration = Duration::from_secs(1);

/// How long a turn may take at most: each of its statements has a deadline of its own, of about a lease.
pub(super) fn patience(ttl: Duration) -> Duration {
    (ttl * 8).max(Duration::from_secs(60))
}

/// What the keeper looks after for a worker. It lives as long as the term, across all sessions of the keeper.
pub trait Rounds: Send {
    /// What the lease row says about the worker.
    fn report(&self) -> Value;

    /// Waits for a change that the report should show at once. Must be cancel safe.
    fn news(&mut self) -> impl Future<Output = ()> + Send;

    /// Called every tick. Returns whether something changed that the report should show at once.
    fn look(&mut self, keeper: &mut Keeper<'_>) -> impl Future<Output = Result<bool>> + Send;

    /// Called as often as the lease is renewed.
    fn chores(&mut self, keeper: &mut Keeper<'_>) -> impl Future<Output = Result<()>> + Send;
}

/// Runs until the lease is lost; the supervisor ends it otherwise. `session` is the one that claimed the lease.
pub async fn keep(term: &Term, mut rounds: impl Rounds, session: Writer) -> Result<()> {
    let ttl = term.config.lease_ttl;
    let mut pause = Pause::up_to(ttl / 4);
    // Kept across sessions: which causes were logged and when the next heartbeat is due do not depend on a session.
    let mut complaints = Complaints::default();
    let mut beat_due = Instant::now() + term.config.heartbeat_interval;
    let (mut open, mut unanswered) = (Some(session), 0);
    let turning = pulse::enter("keeper", &term.lease.worker, patience(ttl));
    turning.settle();
    loop {
        turning.turn().await;
        let asked = Instant::now();
        let claimed = match open.take() {
            Some(store) => Ok(store),
            None => reclaim(term, unanswered).await,
        };
        let silent = claimed.is_err() && asked.elapsed() >= claim_patience(ttl, unanswered);
        unanswered = if silent { unanswered + 1 } else { 0 };
        let ended = match claimed {
            Ok(store) => {
                let store = store.within(keeper_patience(ttl));
                let keeper = Keeper { term, store: &store, complaints: &mut complaints, renewed: None };
                keeper.tend(&mut rounds, &mut beat_due, &turning).await
            }
            Err(e) => Err(e),
        };
        // The session worked for as long as a lease lasts, so the next fault is a new one.
        if asked.elapsed() > ttl {
            pause.reset();
        }
        match ended {
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            Err(e) => tracing::warn!(error = %e.told(), "the lease could not be renewed"),
            Ok(()) => {}
        }
        tokio::time::sleep(pause.grow()).await;
    }
}

/// Opens a session in place of one that broke. It claims the lease again, if no other instance has taken it.
async fn reclaim(term: &Term, unanswered: u32) -> Result<Writer> {
    let store = open_claimant(&term.config, unanswered).await?;
    let Lease { worker, owner, term: number } = &term.lease;
    match store.claim_lease(worker, owner, term.config.lease_ttl).await? {
        Claim::Held { lease, .. } if lease.term == *number => Ok(store),
        Claim::Held { .. } | Claim::Taken(_) => Err(Error::new(Kind::LeaseLost, EXPIRED)),
    }
}

/// One session of the keeper.
pub struct Keeper<'a> {
    pub term: &'a Term,
    pub store: &'a Writer,
    pub complaints: &'a mut Complaints,
    renewed: Option<Instant>,
}

impl Keeper<'_> {
    /// Makes rounds until the session or the lease is gone. The renewal comes first, and only its failure ends the
    /// rounds. Any other failure is logged, is tried again in the next round, and does not keep the later steps from
    /// running.
    async fn tend(mut self, rounds: &mut impl Rounds, beat_due: &mut Instant, turning: &Loop) -> Result<()> {
        let config = &self.term.config;
        loop {
            turning.turn().await;
            let due = self.renewed.is_none_or(|at| at.elapsed() >= self.cadence());
            if due {
                self.renew(rounds.report()).await?;
            }
            let paused = self.store.is_paused(&self.term.lease.worker).await;
            let paused = self.complaints.tolerate("see whether the worker is paused", paused)?;
            let turned = paused.is_some_and(|paused| self.term.note_paused(paused));
            let news = rounds.look(&mut self).await? || turned;
            if news {
                self.renew(rounds.report()).await?;
            }
            if news || due {
                rounds.chores(&mut self).await?;
                look_around(self.store).await?;
            }
            if self.term.stays() && *beat_due <= Instant::now() {
                *beat_due = Instant::now() + config.heartbeat_interval;
                let beaten = self.store.heartbeat(&self.term.lease).await;
                self.complaints.tolerate("emit the heartbeat", beaten)?;
            }
            tokio::select! {
                () = rounds.news() => {}
                () = tokio::time::sleep(TICK.min(config.lease_ttl / 4)) => {}
            }
        }
    }

    /// A worker ticks at this cadence whether there is work or not. A third of the lease, so that one lost tick does
    /// no harm.
    fn cadence(&self) -> Duration {
        self.term.config.lease_ttl / 3
    }

    /// Renews the lease with the worker's report and the fields that every report has.
    async fn renew(&mut self, mut report: Value) -> Result<()> {
        report["pid"] = json!(std::process::id());
        report["version"] = json!(env!("CARGO_PKG_VERSION"));
        report["paused"] = json!(self.term.is_paused());
        if self.term.stays() {
            report["cadence_ms"] = json!(u64::try_from(self.cadence().as_millis()).unwrap_or(u64::MAX));
        }
        self.store.renew_lease(&self.term.lease, &report).await?;
        self.renewed = Some(Instant::now());
        Ok(())
    }

    /// Waits for work that runs on another session, and renews the lease for as long as it takes.
    pub async fn renewing<T>(
        &mut self,
        report: impl Fn() -> Value,
        work: impl Future<Output = Result<T>>,
    ) -> Result<Result<T>> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(self.cadence()) => self.renew(report()).await?,
            }
        }
    }
}
