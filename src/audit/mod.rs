//! The audit: source rows against the recorded signals themselves, never against our own counters, in both directions.
//!
//! Three phases over one source. *Rows*: in key order, every signal a row should have is looked for in the outbox, among the
//! captured, the dead letters and what retention removed; what is nowhere is missing. *Signals*, then *captures*: in the order
//! of their ids, everything recorded that names the source is held against its row; a signal without one is an orphan, one
//! beside the row's own is doubled. Progress is committed chunk by chunk with the counts and names so far, so that an audit
//! that is killed goes on where it was and counts nothing twice, and one that is asked for other rows begins anew.

mod check;
mod progress;

pub use progress::{AuditDepth, Phase, Progress, Scope, Terms};

use crate::core::handoff::Source;
use crate::core::time::parse_timestamptz;
use crate::error::{Error, Kind, Result};
use crate::failpoint::failpoint;
use crate::instance;
use crate::store::Store;
use crate::store::lease::{Claim, Lease};
use check::Checker;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

pub const WORKER: &str = "gov_periodic_full_audit";
/// Far longer than a chunk takes.
pub const TTL: Duration = Duration::from_secs(20);
const CHUNK: i64 = 5_000;

/// An audit that did not come to its end goes on for this long after it began. What it had looked at before that is too old to
/// speak for now, and it begins anew.
const RESUMABLE: Duration = Duration::from_secs(24 * 3600);
/// A row that was committed a moment ago may still be on its way through the intake; it is asked for again this long.
const GRACE: Duration = Duration::from_secs(3);

/// How often a scan begins again after it gave way to somebody who waited for the source, each time after a pause.
const GIVE_WAY: u32 = 20;
const TURN_OF_OTHERS: Duration = Duration::from_millis(500);

/// Takes the audit's lease; two audits at once would count each other's repairs. One that was killed is waited for.
pub async fn claim(store: &Store) -> Result<Lease> {
    let begun = Instant::now();
    loop {
        match store.claim_lease(WORKER, instance::owner(), TTL).await? {
            Claim::Held { lease, .. } => return Ok(lease),
            // It ticks with every chunk: who is still there after the time of a lease is alive.
            Claim::Taken(view) if begun.elapsed() > TTL + Duration::from_secs(1) => {
                let holder = view.owner.unwrap_or_default();
                return Err(Error::new(
                    Kind::Config,
                    format!("another audit is running ({holder}); wait for it to end"),
                ));
            }
            Claim::Taken(view) => {
                tracing::info!(
                    holder = view.owner,
                    "another audit holds the lease; waiting whether it is alive"
                );
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Audits one source. `report` is told after each chunk.
pub struct Audit<'a> {
    pub store: &'a Store,
    pub reader: &'a mut Store,
    pub lease: &'a Lease,
    /// The intake, whose sources and certificates these are.
    pub intake: &'a str,
    pub source: Arc<Source>,
    pub scope: &'a Scope,
}

impl Audit<'_> {
    pub async fn run(mut self, mut report: impl FnMut(&Progress)) -> Result<Progress> {
        let source = Arc::clone(&self.source);
        let checker = Checker {
            store: self.store,
            lease: self.lease,
            intake: self.intake,
            source: &source,
            full: self.scope.full,
        };
        let (after, mut progress) = if self.scope.full {
            let (after, mut progress) = self.resume_or_start().await?;
            report(&progress);
            (self.check_rows(&checker, after, &mut progress, &mut report).await?, progress)
        } else {
            let progress = match self.check_recent(&checker, false, &mut report).await {
                // A row that cannot be read is one that was set aside, or has to be.
                Err(e) if e.of_source && e.of_contents() => {
                    self.check_recent(&checker, true, &mut report).await?
                }
                progress => progress?,
            };
            (None, progress)
        };
        check_signals(&checker, after, &mut progress, &mut report).await?;
        progress.finished = true;
        let value = serde_json::to_value(&progress)?;
        failpoint("audit_before_finish");
        let certificate = progress.certificate(&source);
        self.store
            .finish_audit(
                self.lease,
                source.name(),
                self.scope.full,
                &value,
                self.intake,
                certificate.as_ref(),
            )
            .await?;
        Ok(progress)
    }

    /// An audit on the same terms that did not finish goes on; whatever else is there is followed by a new one.
    async fn resume_or_start(&mut self) -> Result<(Option<String>, Progress)> {
        let terms = self.scope.terms(&self.source)?;
        let snapshot = self.reader.snapshot().await?;
        if let Some((after, stored)) = self.store.audit_progress(WORKER, self.source.name()).await? {
            let stored: Progress = serde_json::from_value(stored).unwrap_or_default();
            let recent = age(&stored.started_at, &snapshot.taken_at).is_some_and(|age| age < RESUMABLE);
            if !stored.finished && !stored.frontier.is_empty() && stored.terms == terms && recent {
                tracing::warn!(
                    source = self.source.name(),
                    begun = stored.started_at,
                    rows = stored.rows,
                    "going on with an audit that did not come to its end"
                );
                return Ok((after, stored));
            }
        }
        Ok((None, Progress::begun(&snapshot, terms)))
    }

    /// Every row in the scope, in key order. Returns where the next phase goes on.
    async fn check_rows(
        &mut self,
        checker: &Checker<'_>,
        mut after: Option<String>,
        progress: &mut Progress,
        report: &mut impl FnMut(&Progress),
    ) -> Result<Option<String>> {
        // Ages are only compared on the server and within the range that the certifying pass itself trusts.
        let snapshot = self.reader.snapshot().await?;
        let known = self.store.frontier(self.intake, self.source.name()).await?;
        let certified = known.filter(|f| f.distrust(&snapshot, None).is_none()).map(|f| f.xid);
        while progress.phase == Phase::Rows {
            let mut begun = Instant::now();
            let rows = self
                .reader
                .rows_in_span(&self.source, &self.scope.since, after.as_deref(), CHUNK, certified)
                .await?;
            let mut names = vec![];
            match rows.last() {
                Some((_, last)) => {
                    let end = self.source.key(last).to_owned();
                    let chunk = checker.look(rows, &progress.repairing).await?;
                    // Of a chunk that was under way when somebody was killed, what lies beyond the end of this one: rows came
                    // meanwhile, and it is the next chunk's to count.
                    let own = chunk.keys(&self.source);
                    let mut beyond = std::mem::take(&mut progress.repairing);
                    beyond.retain(|(key, _)| !own.iter().any(|(own, _)| own == key));
                    if !self.scope.check && !chunk.lacking.is_empty() {
                        // Written down before it is done: whoever goes on after a kill finds these recorded, and still
                        // has to count them as missing. The chunk's end and counts stay where they were.
                        progress.repairing = own.into_iter().chain(beyond.iter().cloned()).collect();
                        checker.keep(after.as_deref(), progress, &[], begun).await?;
                        begun = Instant::now();
                        failpoint("audit_before_repair");
                        checker.repair(&chunk).await?;
                    }
                    names = chunk.names(&self.source);
                    progress.count(chunk.rows, chunk.lacking.iter().map(|(_, why)| *why), chunk.digest);
                    progress.repairing = beyond;
                    after = Some(end);
                }
                None => {
                    progress.repairing.clear();
                    progress.phase = progress.phase.next();
                    after = None;
                }
            }
            checker.keep(after.as_deref(), progress, &names, begun).await?;
            report(progress);
        }
        Ok(after)
    }

    /// The rows not older than the last certificate, in one snapshot.
    async fn check_recent(
        &mut self,
        checker: &Checker<'_>,
        carefully: bool,
        report: &mut impl FnMut(&Progress),
    ) -> Result<Progress> {
        let terms = self.scope.terms(&self.source)?;
        let mut left = GIVE_WAY;
        let mut read = loop {
            match self.reader.read_frontier(self.intake, &self.source, carefully).await {
                // Nothing is counted yet, so the pass may begin again. Later it may not: its repairs would be counted by nobody.
                Err(e) if e.kind == Kind::SourceLocked && !e.of_source && left > 0 => left -= 1,
                read => break read?,
            }
            tokio::time::sleep(TURN_OF_OTHERS).await;
        };
        let mut progress = Progress::begun(&read.snapshot, terms);
        while progress.phase == Phase::Rows {
            let begun = Instant::now();
            let rows = read.next(i32::try_from(CHUNK).unwrap_or(5_000)).await?;
            let mut names = vec![];
            if rows.is_empty() {
                progress.phase = progress.phase.next();
            } else {
                let rows = rows.into_iter().map(|row| (true, row)).collect();
                let chunk = read.meanwhile(checker.look(rows, &[])).await?;
                if !self.scope.check {
                    read.meanwhile(checker.repair(&chunk)).await?;
                }
                names = chunk.names(&self.source);
                progress.count(chunk.rows, chunk.lacking.iter().map(|(_, why)| *why), chunk.digest);
            }
            read.meanwhile(checker.keep(None, &mut progress, &names, begun)).await?;
            report(&progress);
        }
        read.complete()?;
        read.close().await?;
        Ok(progress)
    }
}

/// Everything recorded that names the source, first in the outbox, then among what waits.
async fn check_signals(
    checker: &Checker<'_>,
    after: Option<String>,
    progress: &mut Progress,
    report: &mut impl FnMut(&Progress),
) -> Result<()> {
    let mut after = after.and_then(|a| Uuid::parse_str(&a).ok());
    while let Some(place) = progress.phase.place() {
        let begun = Instant::now();
        let stretch = checker.store.recorded(checker.source, place, after, CHUNK).await?;
        let names = checker.judge(&stretch, progress).await?;
        after = stretch.last().map(|signal| signal.id);
        if after.is_none() {
            progress.phase = progress.phase.next();
        }
        checker.keep(after.map(|a| a.to_string()).as_deref(), progress, &names, begun).await?;
        report(progress);
    }
    Ok(())
}

/// How long before `now` an audit began, by the server's clock.
fn age(begun: &str, now: &str) -> Option<Duration> {
    let micros = |text: &str| parse_timestamptz(text).ok()?.as_unix_micros();
    u64::try_from(micros(now)?.checked_sub(micros(begun)?)?).ok().map(Duration::from_micros)
}

fn millis(since: Instant) -> u64 {
    since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}
