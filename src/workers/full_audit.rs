//! `gov_periodic_full_audit`: every source compared in full with its signals, on a schedule; then candidates that are past
//! their time are sent back to the input gate.
//!
//! ```text
//!   due? ─▶ a source: some chunks of its audit ─▶ … ─▶ its end and certificate ─▶ the next source
//!     └─ no source ─▶ candidates, page by page ─▶ wait
//! ```
//!
//! A page is a few chunks of one audit. Each chunk stores its place, so a kill repeats the reading of one chunk. The
//! command `audit` uses the same places and the same lease: each goes on where the other one stopped.
//! The worker gives the lease back after each page and pauses, so an operator's audit waits for a few seconds only.

use crate::audit::{self, Audit, AuditPhase, Progress, Scope};
use crate::config::Config;
use crate::core::finding::Severity;
use crate::core::handoff::Source;
use crate::daemon::open_session::patience;
use crate::daemon::pages::{self, PageContext, PageDone, PageWorker};
use crate::daemon::term::Term;
use crate::error::{Error, Kind, Result};
use crate::store::findings::Finding;
use crate::store::lease::{Claim, Lease};
use crate::store::source::Registered;
use crate::store::{Reader, Store, connect, role};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub const NAME: &str = audit::WORKER;

/// How long the chunks of one page may take together. A request to stop, and an operator's audit, wait for so long.
const SLICE: Duration = Duration::from_secs(2);
/// Longer than the pause between two attempts of an operator's audit to have the lease.
const TURN: Duration = Duration::from_millis(700);
/// Rows or signals of a chunk; candidates of a page.
const CHUNK: i64 = 5_000;
/// An audit that goes on only in short windows, night by night, may take several days.
const RESUMABLE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A source that could not be audited is tried again after this time; the others have their turn meanwhile.
const AGAIN: Duration = Duration::from_secs(60);
/// How often to look at the schedule: sources are registered, and audited by command, while the worker waits.
const LOOK: Duration = Duration::from_secs(30);
const SOONEST: Duration = Duration::from_millis(200);

/// Runs until `shutdown` turns true, or with `once` until nothing is due.
pub async fn run(config: Config, once: bool, shutdown: watch::Receiver<bool>) -> Result<()> {
    pages::run::<FullAudit>(&config, NAME, once, shutdown).await
}

struct FullAudit {
    /// Reads the sources. Open while there is work.
    reader: Option<Reader>,
    /// The sources that could not be audited, and until when they are left out.
    left_out: HashMap<String, Instant>,
    progress: Value,
}

/// How a page of an audit ended.
enum Slice {
    /// Chunks are left.
    Goes(Progress),
    Ended(Progress),
}

impl PageWorker for FullAudit {
    type Role = role::ReadWriter;

    fn new(_: &Term) -> Self {
        Self { reader: None, left_out: HashMap::new(), progress: Value::Null }
    }

    async fn page(&mut self, store: &mut Store, page: PageContext<'_>) -> Result<PageDone> {
        let config = &page.term.config;
        let every = config.audit_every;
        if every.is_zero() {
            return Ok(self.rest(LOOK));
        }
        let schedule = store.audit_schedule(&config.worker, every).await?;
        let windows = &config.pace.off_peak;
        if !windows.is_empty() && !windows.iter().any(|w| w.contains(schedule.minute)) {
            return Ok(self.rest(LOOK));
        }
        self.left_out.retain(|_, until| *until > Instant::now());
        let may: Vec<_> =
            schedule.sources.iter().filter(|s| !self.left_out.contains_key(&s.source)).collect();
        if let Some(due) = may.iter().find(|s| s.due_in.is_zero()) {
            return self.audit(store, &page, &due.source).await;
        }
        let walk = store.revalidate_candidates(&page.term.lease, every, page.limit(CHUNK)).await?;
        if walk.marked > 0 {
            tracing::info!(candidates = walk.marked, "candidates past their time are checked again");
        }
        let Some(due_in) = walk.due_in else { return Ok(PageDone::more(walk.examined)) };
        let wait = may.iter().map(|s| s.due_in).chain([due_in]).min().unwrap_or(LOOK);
        Ok(self.rest(wait.clamp(SOONEST, LOOK)))
    }

    fn report(&self) -> Value {
        self.progress.clone()
    }
}

impl FullAudit {
    /// Nothing is to be done for this time.
    fn rest(&mut self, wait: Duration) -> PageDone {
        (self.reader, self.progress) = (None, Value::Null);
        PageDone::idle(0, wait)
    }

    /// A page of the audit of one source, under the lease of audits.
    async fn audit(&mut self, store: &Store, page: &PageContext<'_>, name: &str) -> Result<PageDone> {
        // The owner of the worker's lease: the sessions of this worker prove that it is alive.
        let lease = match store.claim_lease(audit::LEASE, &page.term.lease.owner, audit::TTL).await? {
            Claim::Held { lease, .. } => lease,
            Claim::Taken(_) => return Ok(self.rest(TURN)),
        };
        let sliced = self.slice(store, page, &lease, name).await;
        let resigned = store.resign_lease(&lease).await;
        let rows = match sliced {
            Ok(Slice::Goes(progress)) => self.note(name, &progress),
            Ok(Slice::Ended(progress)) => {
                report(store, name, &progress).await?;
                self.note(name, &progress)
            }
            // A takeover of the lease of audits: by an operator's audit, after this instance slept for long.
            Err(e) if e.kind == Kind::LeaseLost => return Ok(self.rest(TURN)),
            // The other sources are audited all the same.
            Err(e) if e.of_source && e.kind != Kind::SlowRead => {
                self.left_out.insert(name.to_owned(), Instant::now() + AGAIN);
                self.reader = None;
                tracing::warn!(source = name, error = %e.told(), "a source could not be audited");
                failed(store, name, &e).await?;
                0
            }
            Err(e) => {
                self.reader = None;
                return Err(e);
            }
        };
        resigned?;
        Ok(PageDone { rows, more: true, wait: TURN })
    }

    /// Chunks of the audit, until the time of a page is over.
    async fn slice(
        &mut self,
        store: &Store,
        page: &PageContext<'_>,
        lease: &Lease,
        name: &str,
    ) -> Result<Slice> {
        let config = &page.term.config;
        let source = source(store, config, name).await?;
        let (reader, scope) = (self.reader(config).await?, Scope { full: true, ..Scope::default() });
        let (intake, resumable) = (config.worker.as_str(), RESUMABLE);
        let mut audit = Audit { store, reader, lease, intake, source, scope: &scope, resumable };
        let (mut place, begun) = (audit.begin().await?, Instant::now());
        while audit.step(&mut place, page.limit(CHUNK)).await? {
            if begun.elapsed() > SLICE || page.term.stopping() {
                return Ok(Slice::Goes(place.progress));
            }
        }
        audit.finish(place).await.map(Slice::Ended)
    }

    async fn reader(&mut self, config: &Config) -> Result<&mut Reader> {
        if self.reader.is_none() {
            let reader: Reader =
                connect::open_reader(&config.target, "gov-handoff full audit reader").await?;
            let reader = reader.only_tables().await?;
            let reader = reader.within(patience(config).max(config.read_timeout + Duration::from_secs(1)));
            reader.bound_reads(config.read_timeout).await?;
            self.reader = Some(reader);
        }
        self.reader.as_mut().ok_or_else(|| Error::new(Kind::Internal, "the audit has no reader"))
    }

    fn note(&mut self, source: &str, progress: &Progress) -> u64 {
        let (phase, rows) = (progress.phase, progress.rows);
        self.progress = if phase == AuditPhase::Over {
            Value::Null
        } else {
            json!({ "source": source, "phase": phase, "rows": rows })
        };
        rows
    }
}

/// The source by its name. Its definition may be broken, or it may have been removed meanwhile.
async fn source(store: &Store, config: &Config, name: &str) -> Result<Arc<Source>> {
    let Registered { sources, broken } = store.registered(&config.worker).await?;
    match sources.into_iter().find(|s| s.name() == name) {
        Some(source) => Ok(source),
        None => {
            let why = broken.into_iter().find(|(broken, _)| broken == name).map(|(_, e)| e);
            let gone = || Error::new(Kind::Catalogue, format!("source {name} is no longer registered"));
            let mut e = why.unwrap_or_else(gone);
            e.of_source = true;
            Err(e)
        }
    }
}

/// Nobody reads the output of a worker, so what its audit found is a finding. The next audit that finds nothing ends it.
async fn report(store: &Store, name: &str, progress: &Progress) -> Result<()> {
    tracing::info!(source = name, rows = progress.rows, clean = progress.clean(), "audited in full");
    store.resolve(&format!("audit_failed:{name}"), "it could be audited").await?;
    let key = format!("audit_discrepancy:{name}");
    if progress.clean() {
        store.resolve(&key, "an audit found nothing wrong").await?;
        return Ok(());
    }
    let Progress { missing, repaired, doubled, orphans, registers, .. } = progress;
    let severity =
        if *missing + *doubled > 0 || !registers.is_empty() { Severity::High } else { Severity::Warning };
    let detail = json!({
        "source": name, "missing": missing, "repaired": repaired, "doubled": doubled, "orphans": orphans,
        "registers": registers,
        "see": "the table gov_audit_name has the keys; gov-handoff audit --full --check prints them",
    });
    store.raise(&Finding { kind: "audit_discrepancy", key, severity, detail }).await
}

/// The source could not be audited. The finding ends with its next audit.
async fn failed(store: &Store, name: &str, why: &Error) -> Result<()> {
    let (key, severity) = (format!("audit_failed:{name}"), Severity::Warning);
    let detail = json!({ "source": name, "error": why.about_row() });
    store.raise(&Finding { kind: "audit_failed", key, severity, detail }).await
}
