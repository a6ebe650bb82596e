//! The audit of the feed: every event against its position and back, in the order of ids.

use crate::audit::progress::{AuditDepth, AuditPhase, Progress, Terms};
use crate::core::repair::Reason;
use crate::error::Result;
use crate::store::audit::{Checkpoint, Discrepancy};
use crate::store::feed::{FEED, Stretch};
use crate::store::lease::Lease;
use crate::store::{Reader, Store};
use std::time::Instant;
use uuid::Uuid;

/// Events compared by one statement.
const STRETCH: i64 = 5_000;

/// Compares the whole outbox with the feed. Missing positions are given, unless this is a check; positions without an event
/// and events with two positions are named and left to an operator. `report` is called after each stretch.
pub async fn audit_feed(
    store: &Store,
    reader: &Reader,
    lease: &Lease,
    check: bool,
    mut report: impl FnMut(&Progress),
) -> Result<Progress> {
    let begun = Instant::now();
    let terms = Terms { depth: AuditDepth::Full, check, ..Terms::default() };
    let mut progress = Progress::begun(&reader.snapshot().await?, terms);
    let mut from = Some(Uuid::nil());
    while let Some(first) = from {
        let stretch = reader.compare_feed(first, STRETCH).await?;
        if !check && !stretch.missing.is_empty() {
            let fed = store.add_feed(lease, &stretch.missing, false, false).await?;
            progress.repaired += u64::try_from(fed).unwrap_or(0);
            *progress.reasons.entry(Reason::Vanished).or_default() += u64::try_from(fed).unwrap_or(0);
        }
        from = stretch.last.filter(|_| stretch.events == STRETCH).and_then(following);
        progress.chunks += 1;
        progress.rows += u64::try_from(stretch.events).unwrap_or(0);
        progress.missing += stretch.missing.len() as u64;
        progress.orphans += stretch.orphans.len() as u64;
        // A position that says something else than its event stands for another event.
        progress.doubled += (stretch.doubled.len() + stretch.differing.len()) as u64;
        if from.is_none() {
            progress.phase = AuditPhase::Over;
            progress.finished = true;
        }
        progress.spent_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let value = serde_json::to_value(&progress)?;
        let (names, anew) = (names(&stretch), progress.chunks == 1);
        let kept = Checkpoint { full: true, after: None, progress: &value, anew, names: &names };
        store.keep_audit(lease, FEED, &kept).await?;
        report(&progress);
    }
    Ok(progress)
}

/// The id after this one; `None` after the last.
#[must_use]
pub fn following(id: Uuid) -> Option<Uuid> {
    id.as_u128().checked_add(1).map(Uuid::from_u128)
}

fn names(stretch: &Stretch) -> Vec<(Discrepancy, String)> {
    let named = |ids: &[Uuid], verdict| ids.iter().map(|id| (verdict, id.to_string())).collect::<Vec<_>>();
    [
        named(&stretch.missing, Discrepancy::Missing),
        named(&stretch.doubled, Discrepancy::Doubled),
        named(&stretch.differing, Discrepancy::Doubled),
        named(&stretch.orphans, Discrepancy::Orphan),
    ]
    .concat()
}
