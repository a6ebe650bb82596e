//! Rows found in a table behind a stream, or in its absence: which of them are missing, why, and their handoff.
//!
//! The steps, the same for a pass over the open ranges and for a certifying pass:
//!
//! 1. wait for the stream to bring what was read ([`Shared::let_the_stream_have_them`]);
//! 2. compare the rows with what is recorded;
//! 3. before the stream is blamed, flush the log, wait again and look again ([`look_again`]);
//! 4. explain what is missing ([`Repairs::explain`]);
//! 5. deliver it, then count the repairs.

use crate::capture::shared::Shared;
use crate::core::captured_by::CapturedBy;
use crate::core::certificate::Digest;
use crate::core::finding::Severity;
use crate::core::repair::{Circumstances, Reason, explain};
use crate::core::stream_state::StreamState;
use crate::core::time::PgInstant;
use crate::error::Result;
use crate::handoff::deliver::{Delivery, Outcome};
use crate::handoff::mapped_row::MappedRow;
use crate::handoff::missing::Missing;
use crate::store::apply::Advance;
use crate::store::findings::Finding;
use crate::store::role;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// What was repaired in one source since its last certificate, and when the source was last read.
#[derive(Default)]
pub struct Repairs {
    looked_at: Option<Instant>,
    pub repaired: BTreeMap<Reason, u64>,
}

/// The result of reconciling a batch of rows.
pub struct Reconciled {
    pub outcome: Outcome,
    /// Rows without a missing signal.
    pub recorded: usize,
    /// Rows of the backlog.
    pub backlog: usize,
    /// Rows that were missing because they took the key of another row.
    pub replaced: usize,
    /// Over every signal that the rows should have.
    pub digest: Digest,
    /// The stream had passed the rows: the stream missed every row that was missing.
    pub passed: bool,
}

impl Repairs {
    /// A pass over this source has ended. A row that is found missing later was not there then.
    pub fn looked(&mut self) {
        self.looked_at = Some(Instant::now());
    }

    /// Steps 2 to 5, for rows of one source. `passed`: the stream has passed them (step 1).
    ///
    /// The order is right for two reasons. Nothing moves before `deliver` commits, with `advance` in the same commit.
    /// Repairs are counted after it: a row that could not be delivered is found again, and would otherwise be counted
    /// twice.
    pub async fn reconcile(
        &mut self,
        shared: &Shared,
        delivery: &Delivery<'_, role::Writer>,
        rows: Vec<MappedRow>,
        advance: Advance<'_>,
        mut passed: bool,
    ) -> Result<Reconciled> {
        let seen = rows.len();
        let mut missing = delivery.missing(rows).await?;
        if passed && !missing.rows.is_empty() {
            passed = look_again(shared, delivery, &mut missing).await?;
        }
        // A row that a poll finds is new, not repaired.
        let reasons = if delivery.captured_by == CapturedBy::Poll {
            BTreeMap::new()
        } else {
            self.explain(shared, delivery, &missing.rows, passed).await?
        };
        let Missing { recorded, backlog, digest, .. } = missing;
        let replaced = missing.rows.iter().filter(|row| row.replaced).count();
        let mut outcome = delivery.deliver(missing.rows, advance).await?;
        for (reason, rows) in reasons {
            *self.repaired.entry(reason).or_default() += rows;
        }
        outcome.seen = seen;
        Ok(Reconciled { outcome, recorded, backlog, replaced, digest, passed })
    }

    /// Tells why each row is missing. Only a row that the stream should have brought raises a finding.
    async fn explain(
        &self,
        shared: &Shared,
        delivery: &Delivery<'_, role::Writer>,
        rows: &[MappedRow],
        passed: bool,
    ) -> Result<BTreeMap<Reason, u64>> {
        let mut reasons = BTreeMap::new();
        let Some(MappedRow { source, .. }) = rows.first() else { return Ok(reasons) };
        let store = delivery.store;
        let watermark = store.watermark_at(&shared.term.config.worker, source.name()).await?;
        let stream = shared.stream.now();
        for row in rows {
            let reason = if row.replaced {
                Reason::Replaced
            } else {
                explain(&self.circumstances(&stream, row, watermark, passed))
            };
            *reasons.entry(reason).or_default() += 1;
        }
        if let Some(missed) = reasons.get(&Reason::MissedByStream) {
            tracing::warn!(
                source = source.name(),
                missed,
                "the stream did not bring these rows; the reconciler hands them off"
            );
            let key = format!("handoff_missed:{}", source.name());
            let detail = json!({ "source": source.name(), "rows": missed });
            let severity = Severity::High;
            store.raise(&Finding { kind: "handoff_missed", key, severity, detail }).await?;
        }
        Ok(reasons)
    }

    fn circumstances(
        &self,
        stream: &StreamState,
        row: &MappedRow,
        watermark: Option<PgInstant>,
        passed: bool,
    ) -> Circumstances {
        let since_last =
            |at: Option<Instant>| at.is_some_and(|at| self.looked_at.is_none_or(|looked| at > looked));
        let continuous =
            stream.continuous_since.is_some_and(|at| self.looked_at.is_some_and(|looked| at < looked));
        let unsettled = stream.unsettled.is_some();
        Circumstances {
            occurred_at: row.watermark.as_ref().and_then(|w| w.at),
            ordered: row.source.definition.order.is_some(),
            watermark,
            stream_vouched: passed
                && continuous
                && !unsettled
                && !row.partly
                && stream.brings(row.source.name()),
            gap: since_last(stream.gap_at) || unsettled,
            first: self.looked_at.is_none(),
        }
    }
}

/// With `synchronous_commit` off, a row can be visible before its log is written. The stream may seem to be past the
/// row and still bring it later. So before the stream is blamed, the log is flushed, the stream gets time to reach
/// that position, and the rows that are still missing are compared once more. False if the stream did not get there.
async fn look_again(
    shared: &Shared,
    delivery: &Delivery<'_, role::Writer>,
    missing: &mut Missing,
) -> Result<bool> {
    let flushed = delivery.store.flush_log().await?;
    let passed = shared.let_the_stream_have_them(delivery.store, Some(flushed)).await?;
    let again = delivery.missing(std::mem::take(&mut missing.rows)).await?;
    missing.recorded += again.recorded;
    missing.backlog += again.backlog;
    missing.rows = again.rows;
    missing.signals = again.signals;
    Ok(passed)
}
