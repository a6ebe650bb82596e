//! The audit: source rows against the recorded signals themselves, never against our own counters, in both directions.
//!
//! Two phases over one source. *Rows*: in key order, every signal a row should have is looked for in the outbox, among the
//! captured, the dead letters and what retention removed; what is nowhere is missing. *Signals*: in identity order, every
//! recorded signal's row is looked for in the source; a signal without one is an orphan. Progress is committed chunk by
//! chunk with the counts so far, so that an audit that is killed goes on where it was and counts nothing twice.

use crate::core::certificate::{Certificate, Digest};
use crate::core::frontier::usable;
use crate::core::handoff::{Mapped, Source};
use crate::core::repair::Reason;
use crate::core::row::Row;
use crate::error::{Error, Kind, Result};
use crate::intake::{Delivery, MappedRow, failpoint};
use crate::store::Store;
use crate::store::apply::Advance;
use crate::store::lease::{Claim, Lease};
use crate::store::proof::Expected;
use crate::store::rows::{Snapshot, Span};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

pub const WORKER: &str = "gov_periodic_full_audit";
/// Far longer than a chunk takes.
pub const TTL: Duration = Duration::from_secs(20);
const CHUNK: i64 = 5_000;
/// A row that was committed a moment ago may still be on its way through the intake; it is asked for again this long.
const GRACE: Duration = Duration::from_secs(3);
/// How many keys are named. Beyond that only the count is kept, and the report says so.
const NAMED: usize = 10_000;

/// What to audit and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Every row; otherwise those not older than the last certificate.
    pub full: bool,
    /// Repair nothing.
    pub check: bool,
    pub since: Span,
}

/// What one source's audit has counted so far; what is stored between chunks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Progress {
    pub started_at: String,
    pub check: bool,
    pub finished: bool,
    pub phase: Phase,
    pub frontier: String,
    pub system_identifier: String,
    pub lsn: Option<String>,
    pub rows: u64,
    pub chunks: u64,
    pub missing: u64,
    pub repaired: u64,
    pub doubled: u64,
    pub orphans: u64,
    pub missing_keys: Vec<String>,
    pub orphan_keys: Vec<String>,
    /// Keys of the chunk under way that were found missing and may be repaired by now, though not counted.
    #[serde(default)]
    pub repairing: Vec<String>,
    pub digest: String,
    pub spent_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    #[default]
    Rows,
    Signals,
}

impl Progress {
    /// Nothing counted yet; complete, in the end, through what this snapshot covers.
    fn begun(snapshot: &Snapshot, check: bool) -> Self {
        Self {
            started_at: snapshot.taken_at.clone(),
            check,
            frontier: snapshot.xmin.to_string(),
            system_identifier: snapshot.system_identifier.clone(),
            lsn: snapshot.lsn.map(|l| l.to_string()),
            digest: Digest::default().to_string(),
            ..Self::default()
        }
    }

    /// Nothing was wrong.
    #[must_use]
    pub fn clean(&self) -> bool {
        self.missing == 0 && self.doubled == 0 && self.orphans == 0
    }

    /// Adds a chunk that is done.
    fn count(&mut self, chunk: Chunk, source: &Source, check: bool) {
        let lacking = u64::try_from(chunk.lacking.len()).unwrap_or(u64::MAX);
        self.rows += chunk.rows;
        self.missing += lacking;
        self.repaired += if check { 0 } else { lacking };
        let room = NAMED.saturating_sub(self.missing_keys.len());
        self.missing_keys.extend(chunk.keys(source).into_iter().take(room));
        self.repairing.clear();
        let mut sum = Digest::parse(&self.digest).unwrap_or_default();
        sum.merge(chunk.digest);
        self.digest = sum.to_string();
    }
}

/// Takes the audit's lease; two audits at once would count each other's repairs. One that was killed is waited for.
pub async fn claim(store: &Store) -> Result<Lease> {
    let owner = format!("audit-{}-{}", std::process::id(), Uuid::new_v4().simple());
    let begun = Instant::now();
    loop {
        match store.claim_lease(WORKER, &owner, TTL).await? {
            Claim::Held(lease) => return Ok(lease),
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
        if !self.scope.full {
            return self.incremental(report).await;
        }
        let (mut after, mut progress) = self.resume_or_start().await?;
        // Ages are only compared on the server and within the range that the certifying pass itself trusts.
        let snapshot = self.reader.snapshot().await?;
        let known = self.store.frontier(self.intake, self.source.name()).await?;
        let certified = known
            .filter(|(f, system)| usable(*f, snapshot.next, *system == snapshot.system_identifier))
            .map(|(f, _)| f);
        report(&progress);
        while progress.phase == Phase::Rows {
            let mut begun = Instant::now();
            let rows = self
                .store
                .rows_in_span(&self.source, &self.scope.since, after.as_deref(), CHUNK, certified)
                .await?;
            match rows.last() {
                Some((_, last)) => {
                    let end = self.source.key(last).to_owned();
                    let chunk = self.checker().look(rows, &progress.repairing).await?;
                    if !self.scope.check && !chunk.lacking.is_empty() {
                        // Written down before it is done: whoever goes on after a kill finds these recorded, and still
                        // has to count them as missing. The chunk's end and counts stay where they were.
                        progress.repairing = chunk.keys(&self.source);
                        self.keep(after.as_deref(), &mut progress, begun).await?;
                        begun = Instant::now();
                        failpoint("audit_before_repair");
                        self.checker().repair(&chunk).await?;
                    }
                    progress.count(chunk, &self.source, self.scope.check);
                    progress.chunks += 1;
                    after = Some(end);
                }
                None => {
                    progress.phase = Phase::Signals;
                    after = None;
                }
            }
            self.keep(after.as_deref(), &mut progress, begun).await?;
            report(&progress);
        }
        self.check_signals(after, &mut progress, &mut report).await?;
        self.finish(progress).await
    }

    /// An audit of the same kind that did not finish goes on; a finished one is followed by a new one.
    async fn resume_or_start(&mut self) -> Result<(Option<String>, Progress)> {
        if let Some((after, stored)) = self.store.audit_progress(WORKER, self.source.name()).await? {
            let stored: Progress = serde_json::from_value(stored).unwrap_or_default();
            if !stored.finished && !stored.frontier.is_empty() && stored.check == self.scope.check {
                tracing::info!(source = self.source.name(), rows = stored.rows, "resuming the audit");
                return Ok((after, stored));
            }
        }
        let snapshot = self.reader.snapshot().await?;
        Ok((None, Progress::begun(&snapshot, self.scope.check)))
    }

    /// The rows not older than the last certificate, in one snapshot.
    async fn incremental(self, mut report: impl FnMut(&Progress)) -> Result<Progress> {
        let begun = Instant::now();
        let source = Arc::clone(&self.source);
        let mut read = self.reader.read_frontier(self.intake, &source).await?;
        let mut progress = Progress::begun(&read.snapshot, self.scope.check);
        let checker = Checker { store: self.store, lease: self.lease, source: &source };
        loop {
            let rows = read.next(i32::try_from(CHUNK).unwrap_or(5_000)).await?;
            if rows.is_empty() {
                break;
            }
            let chunk = checker.look(rows.into_iter().map(|row| (true, row)).collect(), &[]).await?;
            if !self.scope.check {
                checker.repair(&chunk).await?;
            }
            progress.count(chunk, &source, self.scope.check);
            progress.chunks += 1;
            report(&progress);
        }
        read.close().await?;
        progress.doubled = count(self.store.duplicates(source.definition.table()).await?);
        progress.spent_ms = millis(begun);
        self.finish(progress).await
    }

    fn checker(&self) -> Checker<'_> {
        Checker { store: self.store, lease: self.lease, source: &self.source }
    }

    async fn check_signals(
        &mut self,
        after: Option<String>,
        progress: &mut Progress,
        report: &mut impl FnMut(&Progress),
    ) -> Result<()> {
        let first = self.source.identity.bounds().0;
        let mut after = after.and_then(|a| Uuid::parse_str(&a).ok()).unwrap_or(first);
        loop {
            let begun = Instant::now();
            let signals = self.store.signals_of(&self.source, after, CHUNK).await?;
            let Some((last, _)) = signals.last() else { break };
            after = *last;
            let mut keys: Vec<String> = signals.into_iter().map(|(_, key)| key).collect();
            keys.dedup();
            for key in self.store.absent_keys(&self.source, &keys).await? {
                progress.orphans += 1;
                if progress.orphan_keys.len() < NAMED {
                    progress.orphan_keys.push(key);
                }
            }
            self.keep(Some(&after.to_string()), progress, begun).await?;
            report(progress);
        }
        progress.doubled = count(self.store.duplicates(self.source.definition.table()).await?);
        Ok(())
    }

    /// The chunk's counts and its end are one commit; its repairs were committed before and are idempotent. So a kill in
    /// between repeats a chunk's reading, never its counting.
    async fn keep(&self, after: Option<&str>, progress: &mut Progress, begun: Instant) -> Result<()> {
        progress.spent_ms += millis(begun);
        let value = serde_json::to_value(&*progress)?;
        failpoint("audit_before_keep");
        self.store.put_audit_progress(self.lease, self.source.name(), after, &value).await?;
        failpoint("audit_after_keep");
        Ok(())
    }

    async fn finish(self, mut progress: Progress) -> Result<Progress> {
        progress.finished = true;
        if self.scope.full {
            let value = serde_json::to_value(&progress)?;
            self.store.put_audit_progress(self.lease, self.source.name(), None, &value).await?;
        }
        if !self.scope.check {
            let certificate = Certificate {
                source: self.source.name().to_owned(),
                kind: "audit",
                full: self.scope.full,
                frontier: progress.frontier.clone(),
                system_identifier: progress.system_identifier.clone(),
                lsn: progress.lsn.clone(),
                taken_at: progress.started_at.clone(),
                rows_checked: progress.rows,
                already_recorded: progress.rows - progress.missing.min(progress.rows),
                repaired: BTreeMap::from([(Reason::Vanished, progress.repaired)]),
                duplicates: progress.doubled,
                digest: Digest::parse(&progress.digest).unwrap_or_default(),
                duration_ms: progress.spent_ms,
            };
            self.store.put_certificate(self.lease, self.intake, &certificate, true).await?;
        }
        Ok(progress)
    }
}

/// What a look at one chunk of rows came to.
struct Chunk {
    rows: u64,
    digest: Digest,
    /// Rows with a signal that is nowhere, or was nowhere until this audit repaired it.
    lacking: Vec<Row>,
}

impl Chunk {
    fn keys(&self, source: &Source) -> Vec<String> {
        self.lacking.iter().map(|row| source.key(row).to_owned()).collect()
    }
}

/// Looks for what rows should have, and hands off what is nowhere.
struct Checker<'a> {
    store: &'a Store,
    lease: &'a Lease,
    source: &'a Arc<Source>,
}

impl Checker<'_> {
    /// `known`: keys that were found missing by an attempt that was killed.
    async fn look(&self, rows: Vec<(bool, Row)>, known: &[String]) -> Result<Chunk> {
        let (mut expected, mut digest, mut fresh) = (Vec::new(), Digest::default(), HashSet::new());
        for (young, row) in &rows {
            if let Mapped::Handoffs(handoffs) = self.source.map(row) {
                for handoff in handoffs {
                    digest.add(handoff.id);
                    if *young {
                        fresh.insert(handoff.id);
                    }
                    expected.push(Expected::new(self.source, &handoff.source_key, handoff.id));
                }
            }
        }
        let missing = self.settled(&expected, &fresh).await?;
        let mut keys: HashSet<&str> =
            expected.iter().filter(|e| missing.contains(&e.id)).map(|e| e.key.as_str()).collect();
        keys.extend(known.iter().map(String::as_str));
        let count = u64::try_from(rows.len()).unwrap_or(0);
        let lacking =
            rows.into_iter().map(|(_, row)| row).filter(|row| keys.contains(self.source.key(row))).collect();
        Ok(Chunk { rows: count, digest, lacking })
    }

    /// Idempotent, as every delivery is.
    async fn repair(&self, chunk: &Chunk) -> Result<()> {
        if chunk.lacking.is_empty() {
            return Ok(());
        }
        let rows = chunk.lacking.iter().map(|row| MappedRow::of(Arc::clone(self.source), row)).collect();
        let delivery = Delivery { store: self.store, lease: self.lease, captured_by: "audit" };
        delivery.deliver(rows, Advance::Nothing).await?;
        Ok(())
    }

    /// What is missing, after the intake was given time to bring what was on its way. What is older than the last
    /// certificate is on nobody's way any more.
    async fn settled(&self, expected: &[Expected], fresh: &HashSet<Uuid>) -> Result<HashSet<Uuid>> {
        let begun = Instant::now();
        loop {
            let missing: HashSet<Uuid> =
                self.store.unaccounted(self.source.name(), expected).await?.into_iter().collect();
            if missing.is_disjoint(fresh) || begun.elapsed() > GRACE {
                return Ok(missing);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn count(n: i64) -> u64 {
    n.try_into().unwrap_or(0)
}

fn millis(since: Instant) -> u64 {
    since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}
