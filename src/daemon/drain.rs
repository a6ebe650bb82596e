//! Emits what was captured before its type was activated.

use crate::daemon::keeper::Keeper;
use crate::daemon::sessions::open;
use crate::error::Result;
use crate::store::Writer;

/// Captured handoffs moved per statement, small enough to leave the lanes alone.
const CHUNK: i32 = 5_000;

/// Much may have been captured by the time a type is activated, so the lease is renewed meanwhile. The chunks have a session
/// of their own, because one may take longer than the keeper waits for an answer.
pub async fn drain(keeper: &mut Keeper<'_>, report: impl Fn() -> serde_json::Value) -> Result<()> {
    let waiting = keeper.store.drainable().await;
    let waiting = keeper.complaints.tolerate("see what can be drained", waiting)?.unwrap_or_default();
    if waiting.is_empty() {
        return Ok(());
    }
    let term = keeper.term;
    // What becomes of this session is no reason to give up the keeper's, and the lease with it.
    let opened = keeper.renewing(&report, open(&term.config, "gov-handoff drain")).await?;
    let Some(drainer) = keeper.complaints.tolerate_others("open a session to drain", opened)? else {
        return Ok(());
    };
    for event_type in waiting {
        drain_type(keeper, &report, &drainer, &event_type).await?;
    }
    Ok(())
}

/// A fault of one type, or of one row of it, holds up no other type.
async fn drain_type(
    keeper: &mut Keeper<'_>,
    report: &impl Fn() -> serde_json::Value,
    drainer: &Writer,
    event_type: &str,
) -> Result<()> {
    loop {
        let chunk = drainer.drain(Some(&keeper.term.lease), event_type, CHUNK);
        let drained = keeper.renewing(report, chunk).await?;
        let Some(drained) = keeper.complaints.tolerate_others("drain", drained)? else { return Ok(()) };
        if drained.refused > 0 {
            let refused = drained.refused;
            tracing::warn!(event_type, refused, "captured rows rejected, staged for a retry");
        }
        if drained.is_empty() {
            return Ok(());
        }
    }
}
