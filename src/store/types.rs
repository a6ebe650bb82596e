//! Event types: registered, activated, drained.

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
    /// Captured handoffs that wait for the type's activation.
    pub waiting: i64,
}

/// What became of a chunk of captured handoffs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    pub moved: i64,
    /// Refused by the outbox, and staged for a retry.
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
            Some(SqlState::UNDEFINED_TABLE) => {
                Error::new(e.kind, "the governance tables are not here; run `gov-handoff migrate` first")
            }
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

    /// Active types for which something still waits.
    pub async fn drainable(&self) -> Result<Vec<String>> {
        let rows = self.rows(include_str!("sql/types/drainable.sql"), &[]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl<R: Writes> Session<R> {
    /// True if that changed it.
    pub async fn set_type_active(&self, event_type: &str, active: bool) -> Result<bool> {
        Ok(self.one(include_str!("sql/types/set_active.sql"), &[&event_type, &active]).await?.try_get(0)?)
    }

    /// Moves one chunk of captured handoffs to the outbox. Without a lease, as an operator.
    pub async fn drain(&self, lease: Option<&Lease>, event_type: &str, limit: i32) -> Result<Drained> {
        let (worker, owner, term) = parts(lease);
        let params: [&(dyn ToSql + Sync); 5] = [&worker, &owner, &term, &event_type, &limit];
        let row = self.one(include_str!("sql/types/drain.sql"), &params).await.context("draining")?;
        Ok(Drained { moved: row.try_get(0)?, refused: row.try_get(1)? })
    }
}
