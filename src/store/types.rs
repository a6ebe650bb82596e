//! Event types: listing, activating and draining them.

use crate::error::codes::NOT_MIGRATED;
use crate::error::{Context, Error, Result};
use crate::store::Session;
use crate::store::lease::{Lease, parts};
use crate::store::role::Writes;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EventType {
    pub event_type: String,
    pub event_stream: String,
    pub active: bool,
    /// Captures that wait for the type to become active.
    pub waiting: i64,
}

/// The result of draining one chunk of captures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    pub moved: i64,
    /// Signals that the outbox rejected; their rows are staged for a retry.
    pub refused: i64,
}

impl Drained {
    /// Whether there was nothing to drain.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl<R> Session<R> {
    pub async fn event_types(&self) -> Result<Vec<EventType>> {
        let rows = self.rows(include_str!("sql/types/list.sql"), &[]).await.map_err(|e| match e.state() {
            Some(SqlState::UNDEFINED_TABLE) => Error::of(
                &NOT_MIGRATED,
                "the governance tables are not here; run `gov-handoff migrate` first",
            ),
            _ => e.context("reading the event types"),
        })?;
        rows.iter()
            .map(|row| {
                Ok(EventType {
                    event_type: row.try_get("event_type")?,
                    event_stream: row.try_get("event_stream")?,
                    active: row.try_get("active")?,
                    waiting: row.try_get("waiting")?,
                })
            })
            .collect()
    }

    /// Active types that still have captures.
    pub async fn drainable(&self) -> Result<Vec<String>> {
        let rows = self.rows(include_str!("sql/types/drainable.sql"), &[]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl<R: Writes> Session<R> {
    /// Activates or deactivates a type. True if this changed its state.
    pub async fn set_type_active(&self, event_type: &str, active: bool) -> Result<bool> {
        Ok(self.one(include_str!("sql/types/set_active.sql"), &[&event_type, &active]).await?.try_get(0)?)
    }

    /// Moves one chunk of captures to the outbox. An operator calls it without a lease.
    pub async fn drain(&self, lease: Option<&Lease>, event_type: &str, limit: i32) -> Result<Drained> {
        let (worker, owner, term) = parts(lease);
        let params: [&(dyn ToSql + Sync); 5] = [&worker, &owner, &term, &event_type, &limit];
        let row = self.one(include_str!("sql/types/drain.sql"), &params).await.context("draining")?;
        Ok(Drained { moved: row.try_get(0)?, refused: row.try_get(1)? })
    }
}
