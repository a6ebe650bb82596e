//! The audit: source rows against the recorded signals themselves, never against our own counters, in both
//! directions.
//!
//! There are three phases over one source. *Rows*: in key order, every signal that a row should have is looked for in
//! the outbox, the captures, the dead letters and the retired signals; a signal that is nowhere is missing.
//! *Signals*, then *captures*: in the order of their ids, everything recorded that names the source is compared with
//! its row. A signal without a row is an orphan; a signal beside the row's own is doubled.
//!
//! Progress is committed chunk by chunk, with the counts and names so far. So an audit that was killed resumes where
//! it was and counts nothing twice. An audit of other rows starts over.

mod check;
mod feed;
mod progress;

pub use feed::{audit_feed, following};
pub use progress::{AuditDepth, AuditPhase, Progress, Scope, Terms};

use crate::core::handoff::Source;
use crate::core::row::Row;
use crate::core::time::parse_timestamptz;
use crate::error::{Error, Kind, Result};
use crate::failpoint::failpoint;
use crate::instance;
use crate::store::audit::Discrepancy;
use crate::store::lease::{Claim, Lease};
use crate::store::{Reader, Store};
use check::Checker;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The worker under whose name the place of each source's audit is stored. The command uses it too.
pub const WORKER: &str = "gov_periodic_full_audit";
/// The lease of an audit. The worker and the command take it in turns: the worker keeps a lease of its own as well.
pub const LEASE: &str = "gov_handoff_audit";
/// Far longer than a chunk takes.
pub const TTL: Duration = Duration::from_secs(20);
const CHUNK: i64 = 5_000;

/// An audit that was interrupted can be resumed for this long after it began. Its first chunks are then too old to
/// speak for now, and the audit starts over.
pub const RESUMABLE: Duration = Duration::from_secs(24 * 3600);
/// A row that was committed a moment ago may still be on its way through the intake. It is asked for again for this
/// long.
const GRACE: Duration = Duration::from_secs(3);

/// How often a scan begins again after it gave way to a session that waited for the source's lock, each time after a
/// pause.
const GIVE_WAY: u32 = 20;
const TURN_OF_OTHERS: Duration = Duration::from_millis(500);

/// Takes the audit's lease, because two audits at once would count each other's repairs. Waits for the lease of a
/// killed audit.
pub async fn claim(store: &Store) -> Result<Lease> {
    let begun = Instant::now();
    loop {
        match store.claim_lease(LEASE, instance::owner(), TTL).await? {
            Claim::Held { lease, .. } => return Ok(lease),
            // An audit ticks with every chunk. One that still holds the lease after its time to live is alive.
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
                    "another audit holds the lease; waiting to see whether it is alive"
                );
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// The audit of one source. `report` is called after each chunk.
pub struct Audit<'a> {
    pub store: &'a Store,
    pub reader: &'a mut Reader,
    pub lease: &'a Lease,
    /// The intake worker, to which the source and its certificates belong.
    pub intake: &'a str,
    pub source: Arc<Source>,
    pub scope: &'a Scope,
    /// An audit that was interrupted is resumed for this long after it began.
    pub resumable: Duration,
}

/// Where a full audit is: what it has stored, and what it knows of the source.
pub struct AuditPlace {
    pub progress: Progress,
    after: Option<String>,
    /// Rows of transactions below this were certified, and are not on their way.
    certified: Option<u64>,
    resumed: bool,
}

impl<'a> Audit<'a> {
    pub async fn run(mut self, mut report: impl FnMut(&Progress)) -> Result<Progress> {
        let mut place = if self.scope.full {
            let place = self.begin().await?;
            if place.resumed {
                let (source, progress) = (self.source.name(), &place.progress);
                let (begun, rows) = (&progress.started_at, progress.rows);
                tracing::warn!(source, begun, rows, "resuming an audit that did not finish");
            }
            place
        } else {
            let progress = match self.check_recent(false, &mut report).await {
                // The second pass reads each row on its own: a row that cannot be read has a dead letter, or gets
                // one.
                Err(e) if e.of_source && e.of_contents() => self.check_recent(true, &mut report).await?,
                progress => progress?,
            };
            AuditPlace { progress, after: None, certified: None, resumed: false }
        };
        report(&place.progress);
        while self.step(&mut place, CHUNK).await? {
            report(&place.progress);
        }
        self.finish(place).await
    }

    /// Begins a full audit, or goes on with one that was interrupted.
    pub async fn begin(&mut self) -> Result<AuditPlace> {
        let (after, progress) = self.resume_or_start().await?;
        let resumed = !progress.anew;
        // The age of a row is compared only on the server, and only where the certifying pass itself would trust the
        // frontier.
        let snapshot = self.reader.snapshot().await?;
        let known = self.store.frontier(self.intake, self.source.name()).await?;
        let certified = known.filter(|f| f.distrust(&snapshot, None).is_none()).map(|f| f.xid);
        Ok(AuditPlace { progress, after, certified, resumed })
    }

    /// One chunk of at most `most` rows or signals: compared, repaired unless this is a check, and stored. False when nothing
    /// is left to compare.
    pub async fn step(&mut self, place: &mut AuditPlace, most: i64) -> Result<bool> {
        let source = Arc::clone(&self.source);
        let checker = self.checker(&source);
        let mut begun = Instant::now();
        let progress = &mut place.progress;
        let names = match (progress.phase, progress.phase.place()) {
            (AuditPhase::Over, _) => return Ok(false),
            (_, Some(signals)) => {
                let after = place.after.as_deref().and_then(|a| Uuid::parse_str(a).ok());
                let stretch = self.store.recorded(&source, signals, after, most).await?;
                let names = checker.judge(&stretch, progress).await?;
                place.after = stretch.last().map(|signal| signal.id.to_string());
                names
            }
            (_, None) => {
                let (since, after) = (&self.scope.since, place.after.take());
                let rows =
                    self.reader.rows_in_span(&source, since, after.as_deref(), most, place.certified).await?;
                place.after = rows.last().map(|(_, last)| source.key(last).to_owned());
                match place.after {
                    Some(_) => {
                        self.check_chunk(&checker, rows, after.as_deref(), progress, &mut begun).await?
                    }
                    None => {
                        progress.repairing.clear();
                        vec![]
                    }
                }
            }
        };
        if place.after.is_none() {
            progress.phase = progress.phase.next();
        }
        checker.keep(place.after.as_deref(), progress, &names, begun).await?;
        Ok(true)
    }

    /// Ends an audit that has compared everything: its end and its certificate are one commit.
    pub async fn finish(&self, place: AuditPlace) -> Result<Progress> {
        let mut progress = place.progress;
        progress.finished = true;
        if self.scope.full {
            // What these registers hold was taken as accounted for.
            progress.registers = self.store.changed_registers(self.source.name()).await?;
        }
        let value = serde_json::to_value(&progress)?;
        failpoint("audit_before_finish");
        let certificate = progress.certificate(&self.source);
        let (lease, source) = (self.lease, &self.source);
        self.store
            .finish_audit(lease, source, self.scope.full, &value, self.intake, certificate.as_ref())
            .await?;
        Ok(progress)
    }

    fn checker<'c>(&self, source: &'c Arc<Source>) -> Checker<'c>
    where
        'a: 'c,
    {
        let (store, lease, intake) = (self.store, self.lease, self.intake);
        Checker { store, lease, intake, source, full: self.scope.full }
    }

    /// Resumes an unfinished audit with the same terms; otherwise starts a new one.
    async fn resume_or_start(&mut self) -> Result<(Option<String>, Progress)> {
        let terms = self.scope.terms(&self.source)?;
        let snapshot = self.reader.snapshot().await?;
        if let Some((after, stored)) = self.store.audit_progress(WORKER, self.source.name()).await? {
            let stored: Progress = serde_json::from_value(stored).unwrap_or_default();
            let recent = age(&stored.started_at, &snapshot.taken_at).is_some_and(|age| age < self.resumable);
            if !stored.finished && !stored.frontier.is_empty() && stored.terms == terms && recent {
                return Ok((after, stored));
            }
        }
        Ok((None, Progress::begun(&snapshot, terms)))
    }

    /// Compares one chunk of rows, repairs it unless this is a check, and counts it. Returns the names of what is missing.
    /// `after`: the end of the chunk before it. `begun`: from when on the time of this chunk is not stored yet.
    async fn check_chunk(
        &self,
        checker: &Checker<'_>,
        rows: Vec<(bool, Row)>,
        after: Option<&str>,
        progress: &mut Progress,
        begun: &mut Instant,
    ) -> Result<Vec<(Discrepancy, String)>> {
        let chunk = checker.look(rows, &progress.repairing).await?;
        // A killed attempt may have noted keys beyond the end of this chunk, because rows were added meanwhile. The next
        // chunk counts them.
        let own = chunk.keys(&self.source);
        let mut beyond = std::mem::take(&mut progress.repairing);
        beyond.retain(|(key, _)| !own.iter().any(|(own, _)| own == key));
        if !self.scope.check && !chunk.lacking.is_empty() {
            // Stored before the repair: an audit that resumes after a kill finds these rows recorded, and still has to
            // count them as missing. The chunk's end and counts stay where they were.
            progress.repairing = own.into_iter().chain(beyond.iter().cloned()).collect();
            checker.keep(after, progress, &[], *begun).await?;
            *begun = Instant::now();
            failpoint("audit_before_repair");
            checker.repair(&chunk).await?;
        }
        progress.count((chunk.rows, chunk.backlog), chunk.lacking.iter().map(|(_, why)| *why), chunk.digest);
        progress.repairing = beyond;
        Ok(chunk.names(&self.source))
    }

    /// The rows not older than the last certificate, in one snapshot.
    async fn check_recent(
        &mut self,
        carefully: bool,
        report: &mut impl FnMut(&Progress),
    ) -> Result<Progress> {
        let source = Arc::clone(&self.source);
        let checker = self.checker(&source);
        let terms = self.scope.terms(&source)?;
        let mut left = GIVE_WAY;
        let mut read = loop {
            match self.reader.read_frontier(self.intake, &source, carefully).await {
                // Nothing is counted yet, so the pass may begin again. Later it may not, because its repairs would
                // not be counted.
                Err(e) if e.kind == Kind::SourceLocked && !e.of_source && left > 0 => left -= 1,
                read => break read?,
            }
            tokio::time::sleep(TURN_OF_OTHERS).await;
        };
        let mut progress = Progress::begun(&read.snapshot, terms);
        while progress.phase == AuditPhase::Rows {
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
                progress.count(
                    (chunk.rows, chunk.backlog),
                    chunk.lacking.iter().map(|(_, why)| *why),
                    chunk.digest,
                );
            }
            read.meanwhile(checker.keep(None, &mut progress, &names, begun)).await?;
            report(&progress);
        }
        read.complete()?;
        read.close().await?;
        Ok(progress)
    }
}

/// How long before `now` an audit began, by the server's clock.
fn age(begun: &str, now: &str) -> Option<Duration> {
    let micros = |text: &str| parse_timestamptz(text).ok()?.as_unix_micros();
    u64::try_from(micros(now)?.checked_sub(micros(begun)?)?).ok().map(Duration::from_micros)
}

fn millis(since: Instant) -> u64 {
    since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}
