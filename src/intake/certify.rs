//! The certifying pass: every row not older than the frontier, in one snapshot, against the recorded signals.
//!
//! The argument (SPEC §6): a row that is not visible in this snapshot was written by a transaction at or above the
//! snapshot's xmin, so the next pass, which selects everything not older than that, will see it. Visible rows are handed
//! off before the frontier moves. Keys, clocks and the stream do not enter the argument, so it holds whatever they did.

use crate::core::certificate::{Certificate, Digest, REHEARSAL};
use crate::core::conservation::{Conservation, Ledger};
use crate::core::frontier::Distrust;
use crate::core::handoff::Source;
use crate::core::mode::Mode;
use crate::core::repair::{Circumstances, Reason, explain};
use crate::core::time::PgInstant;
use crate::error::{Error, Result};
use crate::intake::Shared;
use crate::intake::deliver::{Delivery, MappedRow, Missing, Outcome};
use crate::intake::keyset::let_the_stream_have_them;
use crate::store::Store;
use crate::store::apply::Advance;
use crate::store::findings::Finding;
use crate::store::rows::Snapshot;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A certificate that says nothing new is kept in the history this often.
const QUIET_HISTORY: Duration = Duration::from_secs(3600);
/// A pass may cost this share of the time between passes, so that a huge table is not scanned back to back.
const DUTY: u32 = 20;

/// What is known about one source's completeness, and what was repaired since the last certificate.
#[derive(Default)]
pub struct Proof {
    looked_at: Option<Instant>,
    certified_at: Option<Instant>,
    history_at: Option<Instant>,
    cost: Duration,
    ledger: Ledger,
    repaired: BTreeMap<Reason, u64>,
}

impl Proof {
    pub fn due(&self, shared: &Shared) -> bool {
        self.due_in(shared).is_zero()
    }

    /// How long until the next certificate.
    pub fn due_in(&self, shared: &Shared) -> Duration {
        let pause = shared.config.certify_interval.max(self.cost * DUTY);
        self.certified_at.map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()))
    }

    /// Due for so long, in a session that began at `begun`, that it goes before the reading of rows.
    pub fn overdue(&self, shared: &Shared, begun: Instant) -> bool {
        let pause = shared.config.certify_interval.max(self.cost * DUTY);
        self.certified_at.unwrap_or(begun).elapsed() >= pause * 2
    }

    /// A source whose rows vanish, or come again under the same ids, is a finding: the latter are absorbed. Only an operator can
    /// tell that it is settled.
    async fn conserve(&mut self, store: &Store, source: &Source, found: Conservation) -> Result<()> {
        if !self.ledger.enter(&found) {
            return Ok(());
        }
        let Conservation { handed_off, rows, highest_handed_off, highest, .. } = found;
        tracing::warn!(source = source.name(), handed_off, rows, "rows that were handed off are gone");
        let key = format!("source_not_conserved:{}", source.name());
        let detail = json!({
            "source": source.name(), "handed_off": handed_off, "rows": rows,
            "highest_handed_off": highest_handed_off, "highest": highest,
            "meaning": "rows were deleted or their ids will come again; a row under an id that was handed off is absorbed",
        });
        store.raise(&Finding { kind: "source_not_conserved", key, severity: "warning", detail }).await
    }

    /// A pass over this source has ended: what is found missing from now on was not there then.
    pub fn looked(&mut self, _: &Shared) {
        self.looked_at = Some(Instant::now());
    }

    /// Tells why each row is missing. Only what the stream should have had is a finding.
    pub async fn explain(
        &self,
        shared: &Shared,
        store: &Store,
        rows: &[MappedRow],
        passed: bool,
    ) -> Result<BTreeMap<Reason, u64>> {
        let mut reasons = BTreeMap::new();
        let Some(MappedRow { source, .. }) = rows.first() else { return Ok(reasons) };
        let watermark = store.watermark_at(&shared.config.worker, source.name()).await?;
        for row in rows {
            let reason = if row.replaced {
                Reason::Replaced
            } else {
                explain(&self.circumstances(shared, row, watermark, passed))
            };
            *reasons.entry(reason).or_default() += 1;
        }
        if let Some(missed) = reasons.get(&Reason::MissedByStream) {
            tracing::warn!(
                source = source.name(),
                missed,
                "the stream did not bring these; handed off by the reconciler"
            );
            let key = format!("handoff_missed:{}", source.name());
            let detail = json!({ "source": source.name(), "rows": missed });
            store.raise(&Finding { kind: "handoff_missed", key, severity: "high", detail }).await?;
        }
        Ok(reasons)
    }

    /// Counts repairs that are made, for the next certificate. Not before: what could not be delivered is found again.
    pub fn repaired(&mut self, reasons: BTreeMap<Reason, u64>) {
        for (reason, rows) in reasons {
            *self.repaired.entry(reason).or_default() += rows;
        }
    }

    fn circumstances(
        &self,
        shared: &Shared,
        row: &MappedRow,
        watermark: Option<PgInstant>,
        passed: bool,
    ) -> Circumstances {
        let record = *shared.record.borrow();
        let since_last =
            |at: Option<Instant>| at.is_some_and(|at| self.looked_at.is_none_or(|looked| at > looked));
        let continuous =
            record.continuous_since.is_some_and(|at| self.looked_at.is_some_and(|looked| at < looked));
        let unsettled = shared.unsettled.borrow().is_some();
        Circumstances {
            occurred_at: row.watermark.as_ref().and_then(|w| w.at),
            ordered: row.source.definition.order.is_some(),
            watermark,
            stream_vouched: passed
                && continuous
                && !unsettled
                && !row.partly
                && !shared.is_unstreamed(row.source.name())
                && *shared.mode.borrow() == Mode::Streaming,
            gap: since_last(record.gap_at) || unsettled,
            first: self.looked_at.is_none(),
        }
    }
}

/// One pass over one source.
pub struct Pass<'a> {
    pub shared: &'a Shared,
    pub reader: &'a mut Store,
    pub writer: &'a Store,
    pub source: &'a Arc<Source>,
    pub batch: i32,
    /// `certify`, unless this pass is how the source is captured.
    pub captured_by: &'static str,
}

impl Pass<'_> {
    pub async fn run(mut self, proof: &mut Proof) -> Result<Outcome> {
        match self.attempt(proof, false).await {
            Err(e) if e.of_source && e.of_contents() => {
                tracing::warn!(source = self.source.name(), error = %e, "a row cannot be read, reading the others");
                self.attempt(proof, true).await
            }
            done => done,
        }
    }

    async fn attempt(&mut self, proof: &mut Proof, carefully: bool) -> Result<Outcome> {
        let Self { shared, writer, source, batch, captured_by, .. } = *self;
        let begun = Instant::now();
        // Asked now, because what this pass costs decides when the next is due: one that took long must not lose the
        // certificate of the rows it checked.
        let due = proof.due(shared) || shared.once;
        let mut read = self.reader.read_frontier(&shared.lease.worker, source, carefully).await?;
        if let Some(why) = read.full.filter(|why| *why != Distrust::First) {
            tracing::info!(source = source.name(), ?why, "the frontier cannot be used, comparing every row");
        }
        crate::intake::failpoint("frontier_before_fetch");
        let delivery = Delivery { store: writer, lease: &shared.lease, captured_by };
        let mut passed = match read.snapshot.lsn {
            Some(lsn) if *shared.mode.borrow() == Mode::Streaming => {
                read.meanwhile(let_the_stream_have_them(shared, writer, Some(lsn))).await?
            }
            _ => false,
        };
        let (mut total, mut digest, mut recorded) = (Outcome::default(), Digest::default(), 0);
        loop {
            let rows = read.next(batch).await?;
            if rows.is_empty() {
                break;
            }
            if shared.stopping() {
                return Ok(total); // The frontier stays where it is; the pass is repeated by whoever comes next.
            }
            let seen = rows.len();
            let mut rows: Vec<_> = rows.iter().map(|row| MappedRow::of(Arc::clone(source), row)).collect();
            let handing_off = async {
                delivery.notice_replaced(&mut rows).await?;
                let mut missing = delivery.missing(rows).await?;
                let replaced = missing.rows.iter().filter(|row| row.replaced).count();
                digest.merge(missing.digest);
                if passed && !missing.rows.is_empty() {
                    passed = look_again(shared, &delivery, &mut missing).await?;
                }
                recorded += missing.recorded;
                // What a poll finds is new, not repaired.
                let reasons = if captured_by == "poll" {
                    BTreeMap::new()
                } else {
                    proof.explain(shared, writer, &missing.rows, passed).await?
                };
                let mut outcome = delivery.deliver(missing.rows, Advance::Nothing).await?;
                proof.repaired(reasons);
                delivery.say_replaced(source, replaced).await?;
                outcome.seen = seen;
                Ok::<_, Error>(outcome)
            };
            total += read.meanwhile(handing_off).await?;
        }
        read.complete()?;
        let (snapshot, relation, full) = (read.snapshot.clone(), read.relation, read.full);
        let counted = read.conservation(&shared.lease.worker, source).await?;
        read.close().await?;
        crate::intake::failpoint("frontier_before_advance");
        // Only now: everything visible in the snapshot is durable, and the rest will be selected again. The relation is the
        // one that was read, whatever has its name by now: if that is another, the next pass compares it in full.
        writer.advance_frontier(&shared.lease, source, &snapshot, relation).await?;
        crate::intake::failpoint("frontier_after_advance");
        proof.cost = begun.elapsed();
        proof.looked(shared);
        let micros = proof.cost.as_micros();
        tracing::debug!(source = source.name(), full = ?full, rows = total.seen, micros, "certifying pass");
        // A table that was just rewritten may show an older snapshot no row at all; the next pass counts it.
        if let Some(found) = counted.filter(|_| full != Some(Distrust::AnotherTable)) {
            proof.conserve(writer, source, found).await?;
        }
        if due {
            let certificate = certificate(source, &snapshot, full, &total, recorded, digest, proof);
            let news = certificate.rows_checked > 0 || certificate.repaired_total() > 0;
            // A rehearsal certifies nothing that anybody should rely on.
            let history = shared.config.worker != REHEARSAL
                && (news || proof.history_at.is_none_or(|at| at.elapsed() > QUIET_HISTORY));
            writer.put_certificate(&shared.lease, &shared.config.worker, &certificate, history).await?;
            // A certificate without a miss, of a stream that was there to miss something, ends the finding.
            if passed && certificate.repaired.get(&Reason::MissedByStream).is_none_or(|n| *n == 0) {
                writer
                    .resolve(&format!("handoff_missed:{}", source.name()), "certified without a miss")
                    .await?;
            }
            proof.certified_at = Some(Instant::now());
            proof.repaired.clear();
            if history {
                proof.history_at = Some(Instant::now());
            }
        }
        Ok(total)
    }
}

/// A commit that nobody waited for (`synchronous_commit` off) can be seen before its log is written: the stream may be past what
/// was written then, and bring it all the same. Before the stream is blamed everything is flushed, the stream gets there, and
/// what is still missing is looked at once more. False if the stream did not get there.
pub async fn look_again(shared: &Shared, delivery: &Delivery<'_>, missing: &mut Missing) -> Result<bool> {
    let flushed = delivery.store.flush_log().await?;
    let passed = let_the_stream_have_them(shared, delivery.store, Some(flushed)).await?;
    let again = delivery.missing(std::mem::take(&mut missing.rows)).await?;
    missing.recorded += again.recorded;
    missing.rows = again.rows;
    missing.signals = again.signals;
    Ok(passed)
}

fn certificate(
    source: &Source,
    snapshot: &Snapshot,
    full: Option<Distrust>,
    total: &Outcome,
    recorded: usize,
    digest: Digest,
    proof: &Proof,
) -> Certificate {
    Certificate {
        source: source.name().to_owned(),
        kind: "certify",
        full: full.is_some(),
        full_because: full,
        since: None,
        frontier: snapshot.xmin.to_string(),
        system_identifier: snapshot.system_identifier.clone(),
        lsn: snapshot.lsn.map(|l| l.to_string()),
        taken_at: snapshot.taken_at.clone(),
        rows_checked: total.seen.try_into().unwrap_or(u64::MAX),
        already_recorded: recorded.try_into().unwrap_or(u64::MAX),
        repaired: proof.repaired.clone(),
        duplicates: None,
        digest,
        duration_ms: proof.cost.as_millis().try_into().unwrap_or(u64::MAX),
    }
}
