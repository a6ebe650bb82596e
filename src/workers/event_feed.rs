//! `gov_event_feed`: a position for every event, also for one that was inserted past every gate.
//!
//! The intake gives positions to its own signals, in the commit that records them (`gov_feed_signals`). This worker gives
//! positions to all other events. It finds them in two ways:
//!
//! ```text
//!   inbox   ids that a gate left in the transaction that inserted the event      page by page, within milliseconds
//!   sweep   events written since the frontier that have no position              beside the pages, on another session
//!             └─ cannot tell, too many, or the counts disagree ─▶ comparison     the whole outbox, stretch by stretch
//! ```
//!
//! A sweep that finds everything in order moves the frontier and leaves a certificate, at the cadence of certificates. The
//! pause between sweeps is a multiple of what a sweep costs.

mod proof;

use crate::config::Config;
use crate::daemon::open_session::open_worker;
use crate::daemon::pages::{PageContext, PageDone, PageWorker, run};
use crate::daemon::term::Term;
use crate::error::{Error, Kind, Result};
use crate::store::feed::Unfed;
use crate::store::{Store, role};
use proof::{Comparison, FeedLedger};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub const NAME: &str = "gov_event_feed";

/// Events of the inbox for each commit. The intake waits for the lock of the feed while a page is written.
const PAGE: i32 = 1_000;
/// Events of a sweep or a comparison for each commit.
const CHUNK: usize = 1_000;
/// More events than this without a position are compared stretch by stretch: each sweep would read the whole outbox again.
const SWEPT: usize = 20_000;
/// After a page with work the inbox is looked at again this soon. The pause grows while there is no work. A gate that emits
/// wakes the worker; events that other gates announce wait for the end of the pause.
const SOONEST: Duration = Duration::from_millis(5);
const LATEST: Duration = Duration::from_millis(100);
/// The pause between sweeps is at least this many times the cost of a sweep.
const DUTY: u32 = 20;

pub async fn feed(config: Config, once: bool, stop: watch::Receiver<bool>) -> Result<()> {
    run::<EventFeed>(&config, NAME, once, stop).await
}

pub struct EventFeed {
    pause: Duration,
    sweep: Option<OutboxSweep>,
    swept_at: Option<Instant>,
    /// How long the last sweep took.
    cost: Duration,
    comparison: Option<Comparison>,
    ledger: FeedLedger,
}

/// A sweep that runs on a session of its own, so that events of the inbox do not wait for it.
struct OutboxSweep {
    task: JoinHandle<Result<(Unfed, Duration)>>,
}

impl Drop for OutboxSweep {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PageWorker for EventFeed {
    type Role = role::ReadWriter;

    fn new(_: &Term) -> Self {
        Self {
            pause: SOONEST,
            sweep: None,
            swept_at: None,
            cost: Duration::ZERO,
            comparison: None,
            ledger: FeedLedger::default(),
        }
    }

    async fn page(&mut self, store: &mut Store, page: PageContext<'_>) -> Result<PageDone> {
        let (term, lease) = (page.term, &page.term.lease);
        store.listen_to_feed().await?;
        let taken = store.take_feed(lease, PAGE, page.begins).await?.taken;
        let rows = u64::try_from(taken).unwrap_or(0);
        if taken == i64::from(PAGE) {
            return Ok(PageDone::more(rows));
        }
        if let Some(comparison) = &mut self.comparison {
            if comparison.stretch(store, lease, CHUNK).await?
                && let Some(ended) = self.comparison.take()
            {
                self.ledger.compared(store, term, ended).await?;
            }
            return Ok(PageDone::more(rows));
        }
        if let Some(unfed) = self.swept(store, term).await? {
            self.comparison = self.ledger.swept(store, term, unfed, CHUNK).await?;
            if self.comparison.is_some() {
                return Ok(PageDone::more(rows));
            }
        }
        if !term.once {
            self.rest(store, term, taken > 0).await;
        }
        Ok(PageDone::idle(rows, Duration::ZERO))
    }

    fn report(&self) -> Value {
        let comparing = self.comparison.as_ref().map(Comparison::progress);
        json!({ "comparing": comparing, "sweep_ms": u64::try_from(self.cost.as_millis()).unwrap_or(u64::MAX) })
    }
}

impl EventFeed {
    /// What a sweep found, if one has ended. Starts the next one when it is due. A single run waits for its sweep, once.
    async fn swept(&mut self, store: &mut Store, term: &Term) -> Result<Option<Unfed>> {
        if term.once {
            if self.swept_at.is_some() {
                return Ok(None);
            }
            let unfed = store.unfed(&term.lease.worker, SWEPT).await?;
            self.swept_at = Some(Instant::now());
            return Ok(Some(unfed));
        }
        match self.sweep.take_if(|sweep| sweep.task.is_finished()) {
            Some(mut sweep) => {
                self.swept_at = Some(Instant::now());
                let ended = (&mut sweep.task).await;
                let ended = ended.map_err(|e| Error::new(Kind::Internal, format!("a sweep failed: {e}")))?;
                match ended {
                    Ok((unfed, cost)) => {
                        self.cost = cost;
                        Ok(Some(unfed))
                    }
                    // Somebody wants to alter the outbox. The next sweep looks again.
                    Err(e) if e.kind == Kind::SourceLocked => Ok(None),
                    Err(e) => Err(e),
                }
            }
            None => {
                if self.sweep.is_none() && self.is_due(&term.config) {
                    self.sweep = Some(OutboxSweep::start(term));
                }
                Ok(None)
            }
        }
    }

    fn is_due(&self, config: &Config) -> bool {
        let pause = config.reconcile_interval.min(config.certify_interval).max(self.cost * DUTY);
        self.swept_at.is_none_or(|at| at.elapsed() >= pause)
    }

    /// Waits until an emitter wakes the worker, or until the pause is over.
    async fn rest(&mut self, store: &Store, term: &Term, worked: bool) {
        self.pause = if worked { SOONEST } else { (self.pause * 5 / 4).min(LATEST) };
        tokio::select! {
            () = store.woken() => self.pause = SOONEST,
            () = term.told_to_stop() => {}
            () = tokio::time::sleep(self.pause) => {}
        }
    }
}

impl OutboxSweep {
    fn start(term: &Term) -> Self {
        let (config, worker) = (term.config.clone(), term.lease.worker.clone());
        let task = tokio::spawn(async move {
            let mut store = open_worker(&config, "gov-handoff gov_event_feed sweep").await?;
            let begun = Instant::now();
            let unfed = store.unfed(&worker, SWEPT).await?;
            Ok((unfed, begun.elapsed()))
        });
        Self { task }
    }
}
