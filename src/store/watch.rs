//! The watchdog, the heartbeat, and the load of the server.

use crate::error::{Context, Error, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::source::ClockReading;
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
    /// `ok`, `warning` or `critical`.
    pub verdict: String,
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

/// How many groups became dirty between two looks.
#[derive(Debug, Clone, Copy)]
pub struct Dirtied {
    pub signals: i64,
    pub at: ClockReading,
    pub dirtied: i64,
    pub groups: i64,
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

    /// Counts since the previous look; the first look counts nothing.
    pub async fn dirtied(&self, worker: &str, before: Option<&Dirtied>) -> Result<Dirtied> {
        let (signals, since) = before.map_or((-1, None), |b| (b.signals, Some(b.at.0)));
        let params: [&(dyn ToSql + Sync); 3] = [&worker, &signals, &since];
        let row =
            self.one(include_str!("sql/watch/storm.sql"), &params).await.context("counting dirty groups")?;
        Ok(Dirtied {
            signals: row.try_get("signals")?,
            at: ClockReading(row.try_get("at")?),
            dirtied: row.try_get("dirtied")?,
            groups: row.try_get("groups")?,
        })
    }
}

impl<R: Writes> Session<R> {
    /// Checks for silent workers; raises and resolves the findings about them.
    pub async fn watch(&self) -> Result<Vec<WorkerWatch>> {
        let rows =
            self.rows(include_str!("sql/watch/watch.sql"), &[]).await.map_err(|e| match e.state() {
                Some(SqlState::UNDEFINED_FUNCTION) => {
                    Error::new(e.kind, "the watchdog is not here; run `gov-handoff migrate` first")
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
                    verdict: row.try_get("verdict")?,
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
