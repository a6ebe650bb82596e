//! The pace: looks at the server's load and slows the lanes down.
//!
//! The pacer belongs to the keeper. The pacer never waits for a lane, and no lane waits for the pacer. So the lease
//! is renewed in time, whatever the pace is.

use crate::core::finding::Severity;
use crate::core::pace::{Governor, Limits, Load, Pace, ReadTimes};
use crate::daemon::finding_flag::Flag;
use crate::daemon::term::Term;
use crate::error::Result;
use crate::store::Writer;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pace as the lanes see it, and what the lanes measure for it.
pub struct Pacing {
    pace: watch::Sender<Pace>,
    slow_read: Duration,
    /// The latest reads of each source.
    reads: Mutex<HashMap<String, ReadTimes>>,
}

impl Pacing {
    pub fn new(limits: &Limits) -> Self {
        let pace = watch::Sender::new(Pace::first(limits));
        Self { pace, slow_read: limits.slow_read, reads: Mutex::default() }
    }

    /// Under load, pauses before a batch; `worked` is how long the last batch took. The pause is bounded and ends
    /// when the term is told to stop. So rows that have arrived are always applied and acknowledged, only later.
    pub async fn rest(&self, term: &Term, worked: Duration) {
        let pause = self.pace.borrow().rest_after(worked);
        if !pause.is_zero() && !term.once {
            term.stopped_within(pause).await;
        }
    }

    /// Whether heavy work has to wait.
    pub fn defers(&self) -> bool {
        self.pace.borrow().deferred.is_some()
    }

    pub fn reason(&self) -> Option<String> {
        self.pace.borrow().reason()
    }

    pub fn note_read(&self, source: &str, took: Duration) {
        if let Ok(mut reads) = self.reads.lock() {
            reads.entry(source.to_owned()).or_default().note(took, self.slow_read);
        }
    }

    /// Forgets the reads of sources that are not read any more, so that they do not count as slow.
    pub fn forget_reads_but_of(&self, read: impl Fn(&str) -> bool) {
        if let Ok(mut reads) = self.reads.lock() {
            reads.retain(|name, _| read(name));
        }
    }

    fn slowest_read(&self) -> Duration {
        let reads = self.reads.lock();
        reads.ok().and_then(|reads| reads.values().map(ReadTimes::slowest).max()).unwrap_or_default()
    }

    /// Whether the reason of the pace changed. A lag that grows by a few bytes at each look does not change it.
    fn set(&self, pace: Pace) -> bool {
        let reason = pace.reason();
        let changed = self.pace.send_if_modified(|now| std::mem::replace(now, pace).reason() != reason);
        if changed {
            tracing::info!(pace = reason.as_deref().unwrap_or("full"), "the pace changed");
        }
        changed
    }
}

pub struct Pacer {
    governor: Governor,
    looked_at: Option<Instant>,
    throttled: Flag,
    deferred: Flag,
}

impl Pacer {
    pub fn new(worker: &str) -> Self {
        Self {
            governor: Governor::default(),
            looked_at: None,
            throttled: Flag::new("handoff_throttled", worker),
            deferred: Flag::new("handoff_deferred", worker),
        }
    }

    /// True if the pace has changed.
    pub async fn look(&mut self, store: &Writer, term: &Term, pacing: &Pacing) -> Result<bool> {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(false);
        }
        self.looked_at = Some(Instant::now());
        let config = &term.config;
        let server = store.server_load().await?;
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        let load = Load {
            blocked_by_us: positive(server.blocked_by_us),
            lock_waits: positive(server.lock_waits),
            standby_lag: server.standby_lag.map(positive),
            slowest_read: pacing.slowest_read(),
        };
        let minute = u16::try_from(server.minute).unwrap_or(0);
        let pace = self.governor.decide(&load, &config.pace, Instant::now(), minute);
        let detail = || json!({ "worker": config.worker, "reason": pace.reason() });
        let loaded = !pace.causes.is_empty();
        self.throttled.set(store, loaded.then(|| (Severity::Warning, detail()))).await?;
        let waits = pace.deferred.is_some() && pace.causes.is_empty();
        self.deferred.set(store, waits.then(|| (Severity::Info, detail()))).await?;
        Ok(pacing.set(pace))
    }
}
