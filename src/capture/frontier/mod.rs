//! The certifying pass: every row not older than the frontier, in one snapshot, against the recorded signals.
//!
//! The argument: a row that is not visible in this snapshot was written by a transaction at or above the
//! snapshot's xmin. The next pass selects everything not older than that, so it will see the row. Visible rows are
//! handed off before the frontier moves. The argument does not use keys, clocks or the stream, so it holds whatever
//! they did.

mod proof;

pub use proof::Proof;

use crate::capture::reconcile::Reconciled;
use crate::capture::shared::Shared;
use crate::core::captured_by::CapturedBy;
use crate::core::certificate::Digest;
use crate::core::conservation::Conservation;
use crate::core::frontier::Distrust;
use crate::core::handoff::Source;
use crate::core::stream_state::StreamState;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::handoff::deliver::{Delivery, Outcome};
use crate::handoff::mapped_row::MappedRow;
use crate::store::apply::Advance;
use crate::store::frontier::{FrontierRead, Snapshot, TableFile};
use crate::store::{Reader, Writer, role};
use std::sync::Arc;
use std::time::Instant;

/// One pass over one source.
pub struct CertifyingPass<'a> {
    pub shared: &'a Shared,
    pub reader: &'a mut Reader,
    pub writer: &'a Writer,
    pub source: &'a Arc<Source>,
    pub batch: i32,
    /// [`CapturedBy::Certify`], unless this pass is the only one that reads the source.
    pub captured_by: CapturedBy,
}

/// The result of a complete pass.
pub struct PassSeen {
    total: Outcome,
    /// Rows without a missing signal.
    recorded: usize,
    /// Rows of the backlog.
    backlog: usize,
    digest: Digest,
    /// The stream had passed the snapshot: the stream missed every row that was missing.
    passed: bool,
    snapshot: Snapshot,
    relation: TableFile,
    full: Option<Distrust>,
    counted: Option<Conservation>,
}

impl CertifyingPass<'_> {
    pub async fn run(mut self, proof: &mut Proof) -> Result<Outcome> {
        match self.attempt(proof, false).await {
            Err(e) if e.of_source && e.of_contents() => {
                tracing::warn!(source = self.source.name(), error = %e.told(), "a row cannot be read, reading the others");
                self.attempt(proof, true).await
            }
            done => done,
        }
    }

    async fn attempt(&mut self, proof: &mut Proof, carefully: bool) -> Result<Outcome> {
        let (shared, writer, source) = (self.shared, self.writer, self.source);
        let begun = Instant::now();
        // Decided before the pass, because the cost of this pass changes when the next is due. A pass that took long
        // must not lose the certificate of the rows it checked.
        let due = proof.is_due(&shared.term.config) || shared.term.once;
        let seen = match self.read(proof, carefully).await? {
            Ok(seen) => seen,
            // Told to stop: the frontier stays where it is, and the next writer repeats the pass.
            Err(Stopped(total)) => return Ok(total),
        };
        failpoint("frontier_before_advance");
        // Only now: everything visible in the snapshot is durable, and the next pass selects the rest. The relation
        // is the one that was read, even if another table has its name by now. In that case the next pass compares
        // the other table in full.
        writer.advance_frontier(&shared.term.lease, source, &seen.snapshot, seen.relation).await?;
        failpoint("frontier_after_advance");
        proof.ended(begun.elapsed());
        let micros = begun.elapsed().as_micros();
        tracing::debug!(source = source.name(), full = ?seen.full, rows = seen.total.seen, micros, "certifying pass");
        proof.conserve(writer, source, &seen).await?;
        if due {
            proof.certify(shared, writer, source, &seen).await?;
        }
        Ok(seen.total)
    }

    /// Reads the rows of the snapshot and hands off those that are missing.
    async fn read(&mut self, proof: &mut Proof, carefully: bool) -> Result<Result<PassSeen, Stopped>> {
        let Self { shared, writer, source, batch, captured_by, .. } = *self;
        let worker = &shared.term.lease.worker;
        let mut read = self.reader.read_frontier(worker, source, carefully).await?;
        if let Some(why) = read.full.filter(|why| *why != Distrust::First) {
            tracing::info!(source = source.name(), ?why, "the frontier cannot be used, comparing every row");
        }
        failpoint("frontier_before_fetch");
        let delivery = Delivery { store: writer, lease: &shared.term.lease, captured_by };
        let mut passed = match read.snapshot.lsn {
            Some(lsn) if shared.stream.read(StreamState::is_streaming) => {
                read.meanwhile(shared.let_the_stream_have_them(writer, Some(lsn))).await?
            }
            _ => false,
        };
        let (mut total, mut digest) = (Outcome::default(), Digest::default());
        let (mut recorded, mut backlog) = (0, 0);
        loop {
            let rows = read.next(batch).await?;
            if rows.is_empty() {
                break;
            }
            if shared.term.stopping() {
                return Ok(Err(Stopped(total)));
            }
            let rows = rows.iter().map(|row| MappedRow::of(Arc::clone(source), row)).collect();
            let handing_off = hand_off(shared, &delivery, source, rows, proof, passed);
            let reconciled = read.meanwhile(handing_off).await?;
            passed = reconciled.passed;
            digest.merge(reconciled.digest);
            recorded += reconciled.recorded;
            backlog += reconciled.backlog;
            total += reconciled.outcome;
        }
        read.complete()?;
        let (snapshot, relation, full) = (read.snapshot.clone(), read.relation, read.full);
        let counted = close(read, worker, source).await?;
        Ok(Ok(PassSeen { total, recorded, backlog, digest, passed, snapshot, relation, full, counted }))
    }
}

/// The daemon was told to stop in the middle of a pass.
struct Stopped(Outcome);

/// Hands off the missing rows of a chunk. A row that took another row's key gets identities of its own.
async fn hand_off(
    shared: &Shared,
    delivery: &Delivery<'_, role::Writer>,
    source: &Source,
    mut rows: Vec<MappedRow>,
    proof: &mut Proof,
    passed: bool,
) -> Result<Reconciled> {
    delivery.notice_replaced(&mut rows).await?;
    let reconciled = proof.repairs.reconcile(shared, delivery, rows, Advance::Nothing, passed).await?;
    delivery.say_replaced(source, reconciled.replaced).await?;
    Ok(reconciled)
}

/// Counts the rows of the snapshot, then ends it.
async fn close(mut read: FrontierRead<'_>, worker: &str, source: &Source) -> Result<Option<Conservation>> {
    let counted = read.conservation(worker, source).await?;
    read.close().await?;
    Ok(counted)
}
