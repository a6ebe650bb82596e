//! Emits what was captured before its type was activated.

use crate::daemon::keeper::Keeper;
use crate::daemon::open_session::open;
use crate::error::Result;
use crate::store::Writer;

/// Captures moved per statement, few enough not to disturb the lanes.
const CHUNK: i32 = 5_000;

/// There may be many captures when a type is activated, so the lease is renewed meanwhile. The chunks have a session
/// of their own, because one chunk may take longer than the keeper waits for an answer.
pub async fn drain(keeper: &mut Keeper<'_>, report: impl Fn() -> serde_json::Value) -> Result<()> {
    let waiting = keeper.store.drainable().await;
    let waiting = keeper.complaints.tolerate("see what can be drained", waiting)?.unwrap_or_default();
    if waiting.is_empty() {
        return Ok(());
    }
    let term = keeper.term;
    // An error of this session must not end the keeper's session, and with it the lease.
    let opened = keeper.renewing(&report, open(&term.config, "gov-handoff drain")).await?;
    let Some(drainer) = keeper.complaints.tolerate_others("open a session to drain", opened)? else {
        return Ok(());
    };
    for event_type in waiting {
        drain_type(keeper, &report, &drainer, &event_type).await?;
    }
    Ok(())
}

/// An error of one type, or of one of its rows, does not hold up the other types.
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
