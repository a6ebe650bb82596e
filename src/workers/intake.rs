//! `gov_handoff_intake`: every row of every source to governance, by the stream and by the tables.
//!
//! ```text
//!   lanes ─┬─ stream lane   reads the slot and decides the mode (core::mode): Starting, Streaming, Polling { reason }
//!          ├─ table lane    follows the mode: milliseconds while polling, seconds while streaming; certifies
//!          └─ retry lane    retries staged rows and rows of newly trusted producers
//!   keeper ── rounds        slot, unused slots, lag, pace, redefined sources, drain, checkpoint, audit rows
//! ```
//!
//! Each lane has its own connections. A lane that fails starts over, with backoff, from what is durable.

use crate::capture::shared::Shared;
use crate::capture::stream::prepare::prepare;
use crate::capture::{stream, table_lane};
use crate::config::Config;
use crate::core::definition::SourceDefinition;
use crate::core::handoff::Source;
use crate::core::mode::Intent;
use crate::daemon::drain_captures::drain;
use crate::daemon::keeper::{Keeper, Rounds};
use crate::daemon::lag::LagWatch;
use crate::daemon::open_session::open;
use crate::daemon::pacer::Pacer;
use crate::daemon::retry;
use crate::daemon::slot_guard::{self, SlotGuard};
use crate::daemon::stream_progress::ModeChanges;
use crate::daemon::supervisor::{Worker, supervise};
use crate::daemon::term::Term;
use crate::daemon::unused_slots::{self, UnusedSlots};
use crate::error::{Error, Policy, Result};
use crate::store::Writer;
use crate::store::source::Registered;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// Runs until `shutdown` turns true, or with `once` until everything that is there is handled.
pub async fn run(config: Config, once: bool, mut shutdown: watch::Receiver<bool>) -> Result<()> {
    let store = open(&config, "gov-handoff").await?;
    store.refuse_standby().await?;
    // A source with a broken definition is reported when it has its turn; the other sources have theirs.
    let Registered { sources, broken } = store.registered(&config.worker).await?;
    if sources.is_empty() && broken.is_empty() {
        return Err(Error::config("no sources are registered; run `gov-handoff sources apply` first"));
    }
    if config.intent == Intent::Stream {
        // The operator asked for the stream only, so a fault is reported at once, before anything is written. A fault
        // that passes by itself, such as a predecessor's walsender that still holds the slot, is no reason to give
        // up.
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
            prepared = prepare(&config, &store, &sources, false) => match prepared {
                Err(e) if e.policy() != Policy::Retry => return Err(e),
                _ => {}
            }
        }
    }
    drop(store);
    supervise::<Intake>(&config, &config.worker, once, shutdown).await
}

struct Intake;

impl Worker for Intake {
    type Shared = Shared;
    type Rounds = IntakeRounds;

    fn share(term: Arc<Term>) -> Shared {
        Shared::new(term)
    }

    async fn lanes(shared: Arc<Shared>) -> Result<()> {
        // The lanes may have run before and been paused. No stream is open now, whatever the last one had reached.
        let intent = shared.term.config.intent;
        shared.stream.update(|stream| stream.rest(intent));
        if shared.term.once {
            return once(&shared).await;
        }
        let (tables, retry) = (table_lane::lane(&shared), retry::lane(&shared.term));
        if shared.term.config.intent == Intent::Poll {
            return tokio::try_join!(tables, retry).map(|_| ());
        }
        tokio::try_join!(stream::lane(&shared), tables, retry).map(|_| ())
    }

    fn rounds(shared: Arc<Shared>) -> IntakeRounds {
        IntakeRounds::new(shared)
    }
}

/// A single run: the stream first, then the tables, so that rows which the stream had are not found missing.
async fn once(shared: &Shared) -> Result<()> {
    if shared.term.config.intent != Intent::Poll {
        stream::lane(shared).await?;
        let lsn = shared.stream.read(|stream| stream.reached);
        tracing::info!(%lsn, "everything in the slot is handed off, comparing with the tables");
    }
    let read = table_lane::lane(shared).await;
    if read.as_ref().is_err_and(|e| !e.of_source) {
        return read;
    }
    // A source that cannot be read ends the run with its error, but only after the other sources are done.
    let finished = retry::finish(&shared.term).await;
    read.and(finished)
}

/// What the keeper looks after for the intake.
struct IntakeRounds {
    shared: Arc<Shared>,
    mode: ModeChanges,
    guard: SlotGuard,
    unused: UnusedSlots,
    lag: LagWatch,
    pacer: Pacer,
    audit: AuditRows,
    /// The sources as they were last read.
    known: Option<Vec<SourceShape>>,
}

impl IntakeRounds {
    fn new(shared: Arc<Shared>) -> Self {
        let config = &shared.term.config;
        Self {
            mode: shared.stream.mode_changes(),
            guard: SlotGuard::default(),
            unused: UnusedSlots::default(),
            lag: LagWatch::new(&config.worker),
            pacer: Pacer::new(&config.worker),
            audit: AuditRows { due: Instant::now() + config.audit_interval, seen: HashMap::new() },
            known: None,
            shared,
        }
    }

    /// Gives the slot up before it retains more log than its budget.
    async fn guard_slot(&mut self, keeper: &mut Keeper<'_>) -> Result<()> {
        let (shared, store) = (Arc::clone(&self.shared), keeper.store);
        let (term, stream) = (&*shared.term, &shared.stream);
        let excess = self.guard.watch(store, term, stream).await;
        if let Some(bytes) = keeper.complaints.tolerate("look at the slot", excess)?.flatten() {
            // This may take as long as a walsender needs to release the slot.
            let giving_up = slot_guard::give_up(term, stream, bytes);
            let gave_up = keeper.renewing(|| self.report(), giving_up).await?;
            let said = self.guard.gave_up(store, term, bytes, &gave_up).await;
            keeper.complaints.tolerate("report that the slot is held", said)?;
            keeper.complaints.tolerate_others("give the slot up", gave_up)?;
        }
        Ok(())
    }

    /// As [`Self::guard_slot`], for slots of ours that the configuration no longer names.
    async fn guard_unused(&mut self, keeper: &mut Keeper<'_>) -> Result<()> {
        let (shared, store) = (Arc::clone(&self.shared), keeper.store);
        let term = &*shared.term;
        let excess = self.unused.watch(store, term).await;
        let excess = keeper.complaints.tolerate("look at the slots that are not in use", excess)?;
        for slot in excess.unwrap_or_default() {
            let gave_up = keeper.renewing(|| self.report(), unused_slots::give_up(term, &slot)).await?;
            let said = self.unused.gave_up(store, term, &slot, &gave_up).await;
            keeper.complaints.tolerate("report that an unused slot is held", said)?;
            keeper.complaints.tolerate_others("give an unused slot up", gave_up)?;
        }
        Ok(())
    }

    /// Tells the lanes when a source was redefined.
    async fn notice_redefinitions(&mut self, keeper: &mut Keeper<'_>) -> Result<()> {
        let now = definitions(keeper.store, &self.shared.term.config.worker).await;
        if let Some(now) = keeper.complaints.tolerate("read the sources", now)? {
            let before = self.known.replace(now);
            if before.is_some() && before != self.known {
                self.shared.definitions.send_modify(|n| *n += 1);
            }
        }
        Ok(())
    }
}

impl Rounds for IntakeRounds {
    fn report(&self) -> Value {
        let config = &self.shared.term.config;
        let (mode, reason) =
            self.shared.stream.read(|stream| (stream.mode.name(), stream.mode.reason().map(str::to_owned)));
        json!({
            "mode": mode,
            "mode_reason": reason,
            "slot": config.slot,
            "slot_retained": self.guard.retained,
            "slot_budget": config.wal_budget,
            "slot_rate": self.guard.rate,
            "lag_ms": u64::try_from(self.lag.lag.as_millis()).unwrap_or(u64::MAX),
            "pace_reason": self.shared.pacing.reason(),
        })
    }

    async fn news(&mut self) {
        self.mode.changed().await;
    }

    async fn look(&mut self, keeper: &mut Keeper<'_>) -> Result<bool> {
        self.guard_slot(keeper).await?;
        self.guard_unused(keeper).await?;
        let shared = Arc::clone(&self.shared);
        let Shared { term, stream, pacing, looks, .. } = &*shared;
        // A paused worker is behind on purpose, and does not work at any pace.
        if term.is_paused() {
            return Ok(self.mode.take());
        }
        let sources: Vec<_> = self.known.iter().flatten().map(|(d, ..)| d.name.clone()).collect();
        let lag = self.lag.look(keeper.store, term, stream, looks, &sources).await;
        keeper.complaints.tolerate("measure the lag", lag)?;
        let repaced = self.pacer.look(keeper.store, term, pacing).await;
        let repaced = keeper.complaints.tolerate("look at the load", repaced)?.unwrap_or(false);
        Ok(self.mode.take() || repaced)
    }

    async fn chores(&mut self, keeper: &mut Keeper<'_>) -> Result<()> {
        if self.shared.term.is_paused() {
            return Ok(());
        }
        self.notice_redefinitions(keeper).await?;
        drain(keeper, || self.report()).await?;
        let checkpoint = keeper.store.checkpoint(&self.shared.term.lease).await;
        keeper.complaints.tolerate("write the checkpoint", checkpoint)?;
        let audited = self.audit.write(keeper.store, &self.shared.term).await;
        keeper.complaints.tolerate("write the audit rows", audited)?;
        Ok(())
    }
}

/// What decides how the lanes read a source: its definition, the columns whose types are rendered separately, and the
/// columns that the server may test. The latter two change when a column's type is altered.
type SourceShape = (SourceDefinition, BTreeSet<String>, BTreeSet<String>);

async fn definitions(store: &Writer, worker: &str) -> Result<Vec<SourceShape>> {
    let sources = store.registered(worker).await?.sources;
    let reading = |s: &Arc<Source>| (s.definition.clone(), s.cast_apart.clone(), s.plain_text.clone());
    Ok(sources.iter().map(reading).collect())
}

/// Writes one audit row per interval for each source that saw rows.
struct AuditRows {
    due: Instant,
    seen: HashMap<String, i64>,
}

impl AuditRows {
    async fn write(&mut self, store: &Writer, term: &Term) -> Result<()> {
        if self.due > Instant::now() {
            return Ok(());
        }
        self.due = Instant::now() + term.config.audit_interval;
        for source in store.source_status(&term.config.worker).await? {
            let before = self.seen.insert(source.source.clone(), source.rows_seen).unwrap_or(0);
            if source.rows_seen > before {
                store.audit_note(&term.lease, &source.source, "handoff_audit").await?;
            }
        }
        Ok(())
    }
}
