//! The watchdog, the heartbeat, and the load of the server.

use crate::core::finding::Silence;
use crate::error::codes::NOT_MIGRATED;
use crate::error::{Context, Error, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// One watched worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerWatch {
    pub worker: String,
    pub last_tick_at: String,
    pub silent_seconds: f64,
    pub cadence_seconds: f64,
    pub verdict: Silence,
    /// The worker was stopped on purpose.
    pub resigned: bool,
}

/// The server's load at one moment; see `sql/watch/load.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLoad {
    pub lock_waits: i64,
    pub blocked_by_us: i64,
    pub standby_lag: Option<i64>,
    /// The minute of the day in UTC, by the server's clock.
    pub minute: i32,
}

impl<R> Session<R> {
    pub async fn server_load(&self) -> Result<ServerLoad> {
        let row = self.one(include_str!("sql/watch/load.sql"), &[]).await.context("looking at the load")?;
        Ok(ServerLoad {
            lock_waits: row.try_get("lock_waits")?,
            blocked_by_us: row.try_get("blocked_by_us")?,
            standby_lag: row.try_get("standby_lag")?,
            minute: row.try_get("minute")?,
        })
    }
}

impl<R: Writes> Session<R> {
    /// Checks for silent workers; raises and resolves the findings about them.
    pub async fn watch(&self) -> Result<Vec<WorkerWatch>> {
        let rows =
            self.rows(include_str!("sql/watch/watch.sql"), &[]).await.map_err(|e| match e.state() {
                Some(SqlState::UNDEFINED_FUNCTION) => {
                    Error::of(&NOT_MIGRATED, "the watchdog is not here; run `gov-handoff migrate` first")
                }
                _ => e.context("watching the workers"),
            })?;
        rows.iter()
            .map(|row| {
                Ok(WorkerWatch {
                    worker: row.try_get("worker_name")?,
                    last_tick_at: row.try_get("last_tick_at")?,
                    silent_seconds: row.try_get("silent_seconds")?,
                    cadence_seconds: row.try_get("cadence_seconds")?,
                    verdict: Silence::of(row.try_get("verdict")?),
                    resigned: row.try_get("resigned")?,
                })
            })
            .collect()
    }

    /// Publishes the work since the last heartbeat, as an event if its type is active.
    pub async fn heartbeat(&self, lease: &Lease) -> Result<Value> {
        let params: [&(dyn ToSql + Sync); 3] = [&lease.worker, &lease.owner, &lease.term];
        let row = self.one(include_str!("sql/watch/heartbeat.sql"), &params).await.context("heartbeat")?;
        Ok(row.try_get(0)?)
    }
}
