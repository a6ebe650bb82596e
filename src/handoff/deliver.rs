//! From rows to durable effects: map, coalesce, apply. A row that cannot be handed off is staged or becomes a dead
//! letter, never dropped.

use crate::core::captured_by::CapturedBy;
use crate::core::coalesce::{Batch, coalesce};
use crate::core::handoff::{Handoff, Mapped, Source};
use crate::core::watermark::{self, Watermark};
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::handoff::mapped_row::MappedRow;
use crate::meter::APPLY;
use crate::store::Session;
use crate::store::apply::{Advance, CursorStep};
use crate::store::lease::Lease;
use crate::store::role::Writes;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

/// Rejected at the first attempt, which is also the last.
const FIRST: u32 = 1;

/// The result of a delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub seen: usize,
    pub emitted: i64,
    pub captured: i64,
    /// Staged for a retry.
    pub staged: i64,
    /// Dead-lettered.
    pub refused: i64,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.seen += other.seen;
        self.emitted += other.emitted;
        self.captured += other.captured;
        self.staged += other.staged;
        self.refused += other.refused;
    }
}

/// One mapped row, whole: all its signals are handed off or set aside together.
pub struct Item {
    pub source: Arc<Source>,
    pub key: String,
    pub watermark: Option<Watermark>,
    pub handoffs: Vec<Handoff>,
}

pub struct Delivery<'a, R> {
    pub store: &'a Session<R>,
    pub lease: &'a Lease,
    pub captured_by: CapturedBy,
}

impl<R: Writes> Delivery<'_, R> {
    /// Makes the effects of `rows` durable. The commit of the last of them also moves the reader, as `advance` says.
    /// When this returns, the caller may acknowledge. When it fails, nothing has moved, and calling it again is safe.
    ///
    /// The order is right because everything before the last commit moves nothing. Rows set aside and parts of a
    /// bisected batch are idempotent by identity, and a crash between them leaves the reader where it was.
    pub async fn deliver(&self, rows: Vec<MappedRow>, advance: Advance<'_>) -> Result<Outcome> {
        let mut outcome = Outcome { seen: rows.len(), ..Outcome::default() };
        let mut items = Vec::with_capacity(rows.len());
        // The definitions of all rows, also of excluded ones: their ids leave the ranges because of the definition.
        let versions = versions(rows.iter().map(|row| &row.source));
        for MappedRow { source, key, watermark, mapped, .. } in rows {
            match mapped {
                // Its id leaves the ranges by `advance`. It is not counted as seen, because the stream never sees it;
                // and because otherwise our own audit rows would lead to the next audit row.
                Mapped::Excluded => {}
                Mapped::Handoffs(handoffs) => items.push(Item { source, key, watermark, handoffs }),
                // A contract violation: a retry would not change it.
                Mapped::Refused(refusal) => {
                    outcome.refused += self.set_aside(&source, &refusal, &[], FIRST).await?
                }
            }
        }
        let begun = Instant::now();
        let applied = self.apply(&items, advance, &versions).await;
        APPLY.observe(begun.elapsed());
        match applied {
            Err(e) if self.is_poison(&e).await => {
                let (applied, steps) = self.bisect(items, e).await?;
                outcome += applied;
                failpoint("after_bisect");
                // Every row is recorded, staged or a dead letter by now, so the reader may move past all of them. A
                // poison row holds back neither the slot nor the watermark.
                let nothing = Batch::default();
                self.store.apply(self.lease, self.captured_by, &nothing, &steps, advance, &versions).await?;
            }
            applied => outcome += applied?,
        }
        Ok(outcome)
    }

    async fn apply(&self, items: &[Item], advance: Advance<'_>, versions: &[Uuid]) -> Result<Outcome> {
        let batch = coalesce(items.iter().flat_map(|item| &item.handoffs).collect());
        let applied = self
            .store
            .apply(self.lease, self.captured_by, &batch, &cursor_steps(items), advance, versions)
            .await?;
        Ok(Outcome { emitted: applied.emitted, captured: applied.captured, ..Outcome::default() })
    }

    /// Records the signals of one row that are neither recorded nor retired; another path may have recorded some
    /// meanwhile. The row was counted as seen when it was staged.
    pub async fn apply_again(&self, item: &mut Item) -> Result<()> {
        // Its key may have been another row's. Then its signals have, or get, identities of their own.
        let taken = self.taken(&item.source, &item.handoffs.iter().collect::<Vec<_>>()).await?;
        for handoff in item.handoffs.iter_mut().filter(|h| taken.contains(&h.id)) {
            handoff.replace(&item.source.identity);
        }
        let ids: Vec<Uuid> = item.handoffs.iter().map(|h| h.id).collect();
        let mut due: HashSet<Uuid> = self.store.unrecorded(&ids).await?.into_iter().collect();
        if !due.is_empty() {
            for retired in self.store.retired(&ids).await? {
                due.remove(&retired);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let batch = coalesce(item.handoffs.iter().filter(|h| due.contains(&h.id)).collect());
        let mut steps = cursor_steps(std::slice::from_ref(item));
        steps.iter_mut().for_each(|step| step.seen = 0);
        let versions = versions([&item.source]);
        self.store.apply(self.lease, self.captured_by, &batch, &steps, Advance::Nothing, &versions).await?;
        Ok(())
    }

    /// Whether an error is about rows. Some errors may also be about the gate itself, or a table that it writes. Then
    /// the gate is asked to write nothing: if that fails as well, no row is to blame and none is set aside.
    pub async fn is_poison(&self, cause: &Error) -> bool {
        cause.is_poison() || cause.may_be_poison() && self.store.probe_gates().await.is_ok()
    }

    /// Halves a rejected batch until each poison row stands alone. Each half commits by itself and moves nothing.
    /// Returns how the cursors move past the poison rows.
    async fn bisect(&self, items: Vec<Item>, cause: Error) -> Result<(Outcome, Vec<CursorStep>)> {
        let policy = self.store.retry_policy().await?;
        let mut outcome = Outcome::default();
        let mut poison = Vec::new();
        let mut stack = vec![(items, cause)];
        let of = |items: &[Item]| versions(items.iter().map(|item| &item.source));
        while let Some((mut items, cause)) = stack.pop() {
            if items.len() == 1 {
                // Two writers that record the same row at the same moment may collide in another index than the gate
                // expects. The other writer has committed by now, so a second attempt finds the row recorded.
                if cause.code.as_deref() == Some(SqlState::UNIQUE_VIOLATION.code())
                    && let Ok(applied) = self.apply(&items, Advance::Nothing, &of(&items)).await
                {
                    outcome += applied;
                    continue;
                }
                outcome += self.stage(&items[0], &cause, policy).await?;
                poison.append(&mut items);
                continue;
            }
            let right = items.split_off(items.len() / 2);
            for half in [right, items].into_iter().filter(|h| !h.is_empty()) {
                match self.apply(&half, Advance::Nothing, &of(&half)).await {
                    Ok(applied) => outcome += applied,
                    Err(e) if self.is_poison(&e).await => stack.push((half, e)),
                    Err(e) => return Err(e),
                }
            }
        }
        poison.iter_mut().for_each(|item| item.handoffs.clear());
        Ok((outcome, cursor_steps(&poison)))
    }
}

/// The definitions that mapped these rows, once each.
fn versions<'s>(sources: impl IntoIterator<Item = &'s Arc<Source>>) -> Vec<Uuid> {
    let mut out: Vec<Uuid> = Vec::new();
    for version in sources.into_iter().filter_map(|source| source.version) {
        if out.last() != Some(&version) && !out.contains(&version) {
            out.push(version);
        }
    }
    out
}

fn cursor_steps(items: &[Item]) -> Vec<CursorStep> {
    let mut steps: Vec<CursorStep> = Vec::new();
    for item in items {
        let at = steps.iter().position(|s| s.source == item.source.name()).unwrap_or_else(|| {
            steps.push(CursorStep {
                source: item.source.name().to_owned(),
                watermark: None,
                seen: 0,
                signals: 0,
            });
            steps.len() - 1
        });
        let step = &mut steps[at];
        step.seen += 1;
        step.signals += i64::try_from(item.handoffs.len()).unwrap_or(i64::MAX);
        // A row with the time `infinity` would move the watermark there, and no later row could move it.
        if let Some(seen) = item.watermark.as_ref().filter(|w| w.at.is_none_or(|at| at.is_finite())) {
            watermark::advance(&mut step.watermark, seen.clone());
        }
    }
    steps
}
