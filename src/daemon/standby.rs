//! Waiting for the lease. A standby also runs the watchdog, so a silent writer is noticed by the instance that would
//! replace it.

use crate::config::Config;
use crate::core::finding::{Severity, Silence};
use crate::core::lease::{LeaseDecision, LeaseView, claim_patience, decide};
use crate::core::mode::Intent;
use crate::daemon::backoff::Pause;
use crate::daemon::open_session::{open, open_claimant};
use crate::error::{Error, Kind, Policy, Result};
use crate::pulse;
use crate::store::findings::Finding;
use crate::store::lease::{Claim, Lease};
use crate::store::{Writer, connect};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A writer and a standby are two instances, which is normal. After waiting for this many times the lease's time to
/// live, a standby raises a finding all the same, because a second instance may also be a mistake.
const CONFLICT_AFTER: u32 = 5;
/// How long an instance that is told to stop may take to resolve its finding.
const FAREWELL: Duration = Duration::from_secs(2);

/// Waits for the lease and returns it with the session that claimed it. The lease is ours for as long as that session
/// is open, or the lease is renewed. `None`: told to stop first.
pub async fn seek(
    config: &Config,
    worker: &str,
    once: bool,
    owner: &str,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<Option<(Lease, Writer)>> {
    let mut seeker = Seeker::new(config, worker, once, owner);
    let turning = pulse::enter("standby", worker, (config.lease_ttl * 8).max(Duration::from_secs(60)));
    loop {
        turning.turn().await;
        let asked = Instant::now();
        // A broken connection may never answer. An instance that is told to stop does not wait for it.
        let attempt = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => None,
            attempt = seeker.attempt() => Some(attempt),
        };
        let Some(attempt) = attempt else { break };
        // A session that did not get the lease stays open until the wait is over.
        let wait = match attempt {
            Ok((Claim::Held { lease, former }, session)) => {
                if let Some(former) = former.filter(|_| worker == config.worker) {
                    end_stream_of(config, &former).await;
                }
                return Ok(Some((lease, session)));
            }
            Ok((Claim::Taken(ref view), _)) => {
                turning.settle();
                seeker.taken(view)?
            }
            Err(e) => seeker.failed(e, asked)?,
        };
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(wait.max(Duration::from_millis(50))) => {}
        }
    }
    farewell(config, worker, seeker.conflict).await;
    Ok(None)
}

/// An instance that asks for the lease, and what it remembers between two attempts.
struct Seeker<'a> {
    config: &'a Config,
    worker: &'a str,
    once: bool,
    owner: &'a str,
    begun: Instant,
    pause: Pause,
    /// This instance may have raised the finding that it waits.
    conflict: bool,
    /// How many attempts in a row got no answer.
    unanswered: u32,
}

impl<'a> Seeker<'a> {
    fn new(config: &'a Config, worker: &'a str, once: bool, owner: &'a str) -> Self {
        let pause = Pause::up_to(config.lease_ttl / 3);
        Self { config, worker, once, owner, begun: Instant::now(), pause, conflict: false, unanswered: 0 }
    }

    /// Claims the lease on a new session. If another instance has it, watches the workers on the same session.
    ///
    /// The claim comes first: the watchdog must not keep the instance from a lease that is free.
    async fn attempt(&mut self) -> Result<(Claim, Writer)> {
        let config = self.config;
        let store = open_claimant(config, self.unanswered).await?;
        let claim = store.claim_lease(self.worker, self.owner, config.lease_ttl).await?;
        match &claim {
            Claim::Held { .. } if self.conflict => {
                store.resolve(&key(self.worker), "the instance that waited holds the lease now").await?;
            }
            Claim::Taken(view) if !self.once => self.stand_by(&store, view).await?,
            _ => {}
        }
        Ok((claim, store))
    }

    /// Runs the watchdog, and reports a standby that has waited for long.
    async fn stand_by(&mut self, store: &Writer, view: &LeaseView) -> Result<()> {
        look_around(store).await?;
        let config = self.config;
        if self.begun.elapsed() < config.lease_ttl * CONFLICT_AFTER {
            return Ok(());
        }
        // Noted before the finding is raised: if this attempt is cut short, the finding may be there.
        self.conflict = true;
        let detail = json!({
            "worker": self.worker, "holder": view.owner, "waiting": self.owner,
            "meaning": "another instance waits for the lease: a standby, or one too many",
        });
        store.sustain(&finding(self.worker, Severity::Info, detail), config.lease_ttl).await
    }

    /// How long to wait while another instance has the lease.
    fn taken(&mut self, view: &LeaseView) -> Result<Duration> {
        // A single run does not stand by. It ends once it is clear that the holder is alive.
        if self.once && self.begun.elapsed() > self.config.lease_ttl {
            let holder = view.owner.as_deref().unwrap_or_default();
            return Err(Error::new(
                Kind::Refused,
                format!("another instance is running ({holder}); it handles what is there"),
            ));
        }
        self.unanswered = 0;
        self.pause.reset();
        tracing::debug!(worker = self.worker, owner = view.owner, "another instance holds the lease");
        Ok(match decide(view, self.owner) {
            LeaseDecision::Wait(wait) => wait,
            LeaseDecision::Claim | LeaseDecision::Renew => Duration::ZERO,
        })
    }

    /// How long to wait after an attempt that failed; the error itself if a retry cannot help.
    fn failed(&mut self, e: Error, asked: Instant) -> Result<Duration> {
        if e.policy() != Policy::Retry {
            return Err(e);
        }
        tracing::warn!(error = %e.told(), "cannot ask for the lease");
        // An immediate refusal is an answer. Only silence makes the next attempt wait longer.
        if asked.elapsed() >= claim_patience(self.config.lease_ttl, self.unanswered) {
            self.unanswered += 1;
        }
        Ok(self.pause.grow())
    }
}

/// The former holder's walsender may run under another role, the one for replication. Only that role may end it.
async fn end_stream_of(config: &Config, former: &str) {
    if config.intent == Intent::Poll || config.replication.user() == config.target.user() {
        return;
    }
    let ended = async {
        let store = connect::open_within(&config.replication, "gov-handoff replication", FAREWELL).await?;
        store.end_sessions_of(former).await;
        Ok::<_, Error>(())
    };
    match tokio::time::timeout(FAREWELL, ended).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::debug!(error = %e.told(), "could not look for the former holder's stream"),
        Err(_) => tracing::debug!("could not look for the former holder's stream in time"),
    }
}

/// Resolves the finding about this standby, if there is one and the server can be reached.
async fn farewell(config: &Config, worker: &str, conflict: bool) {
    if !conflict {
        return;
    }
    let resolved = async {
        let store = open(config, "gov-handoff standby").await?;
        store.resolve(&key(worker), "the instance that waited was stopped").await
    };
    let _ = tokio::time::timeout(FAREWELL, resolved).await;
}

/// The watchdog, which every instance runs. Its errors stop nothing else, unless the connection is gone.
pub async fn look_around(store: &Writer) -> Result<()> {
    match store.watch().await {
        Ok(watched) => {
            for silent in watched.iter().filter(|w| w.verdict != Silence::Ok) {
                tracing::warn!(
                    worker = silent.worker,
                    seconds = silent.silent_seconds.round(),
                    verdict = silent.verdict.name(),
                    "a worker is silent"
                );
            }
        }
        Err(e) if e.kind == Kind::Connection => return Err(e),
        Err(e) => tracing::warn!(error = %e.told(), "could not look for silent workers"),
    }
    Ok(())
}

/// Reports that this instance lost the lease while it was alive. If another instance holds the lease now, this one
/// slept past its lease, or there is one instance too many. If the lease only expired, because this instance or the
/// server was away for too long, there is no conflict. The finding is raised before the instance asks for the lease
/// again, because the claim changes the owner that is compared here. So it may not take longer than a claim does. It
/// is not the finding of a standby, which a waiting standby would keep open.
pub async fn lost(config: &Config, lease: &Lease) {
    let detail = json!({
        "worker": lease.worker, "lost_by": lease.owner, "term": lease.term,
        "meaning": "an instance that was alive lost its lease to another",
    });
    let raised = async {
        let store = open_claimant(config, 0).await?;
        if store.lease_owner(&lease.worker).await?.is_none_or(|owner| owner == lease.owner) {
            return Ok(());
        }
        let finding = finding(&lease.worker, Severity::Warning, detail);
        store.raise(&Finding { key: format!("{}:lost", finding.key), ..finding }).await
    };
    if let Err(e) = raised.await {
        tracing::debug!(error = %e.told(), "the finding could not be raised");
    }
}

fn finding(worker: &str, severity: Severity, detail: serde_json::Value) -> Finding {
    Finding { kind: "cursor_lease_conflict", key: key(worker), severity, detail }
}

fn key(worker: &str) -> String {
    format!("cursor_lease_conflict:{worker}")
}
