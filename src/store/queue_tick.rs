//! The gates of the worker `gov_queue_tick`: work of the queue that becomes due.

use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use tokio_postgres::types::ToSql;

/// What one call of a gate did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticked {
    pub done: u64,
    /// Call again: there may be more that is due.
    pub more: bool,
}

impl<R: Writes> Session<R> {
    /// Runs one gate of the tick, and commits what it did behind the fence.
    pub async fn tick(&self, lease: &Lease, gate: &str, begins: bool) -> Result<Ticked> {
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &gate, &begins];
        let row = self
            .one(include_str!("sql/queue_tick/page.sql"), &params)
            .await
            .context(format!("running the gate {gate} of the tick"))?;
        Ok(Ticked { done: row.try_get::<_, i64>(0)?.unsigned_abs(), more: row.try_get(1)? })
    }
}
