//! The values of the metrics. They are read from views that an observer may read, and never from a source, the outbox
//! or a count of either. So the cost does not grow with the number of signals.

use crate::core::dead_letter::RETRY_KIND;
use crate::error::codes::NOT_MIGRATED;
use crate::error::{Error, Result};
use crate::store::Session;
use crate::store::job_metrics::JobReading;
use crate::store::value::from_pg;
use crate::store::worker::FamilyMember;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

/// All values, read once.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub worker: Option<WorkerReading>,
    /// Every worker of the family that has ever run.
    pub workers: Vec<FamilyMember>,
    pub sources: Vec<SourceReading>,
    pub repairs: Vec<RepairTotal>,
    pub slot: Option<SlotReading>,
    /// The position up to which the stream is recorded, in bytes.
    pub durable_lsn: Option<u64>,
    pub findings: Vec<OpenFindings>,
    pub dead_letters: i64,
    /// Each type with the number of its captures, counted up to a limit.
    pub captured: Vec<(String, i64)>,
    /// Staged rows, counted up to the same limit.
    pub retrying: i64,
    pub jobs: JobReading,
}

/// The holder of the lease, and what it last reported.
#[derive(Debug, Clone)]
pub struct WorkerReading {
    pub owner: Option<String>,
    pub term: Option<i64>,
    /// The worker holds the lease, and the lease has not expired.
    pub alive: bool,
    pub mode: Option<String>,
    pub ttl_ms: Option<i64>,
    pub lag_ms: Option<i64>,
    pub ticks: i64,
    pub slot_budget: Option<i64>,
    pub tick_age: f64,
    /// Seconds since the Unix epoch.
    pub ticked_at: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct SourceReading {
    pub source: String,
    pub rows_seen: i64,
    pub signals: i64,
    pub dead_lettered: i64,
    pub hot_holes: i64,
    pub cold_holes: i64,
    pub frontier_age: Option<f64>,
    pub frontier_behind: Option<i64>,
    pub certificate_age: Option<f64>,
    /// Seconds since the Unix epoch.
    pub frontier_at: Option<f64>,
    /// Seconds since the Unix epoch.
    pub certificate_at: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct RepairTotal {
    pub source: String,
    pub reason: String,
    pub repaired: i64,
}

#[derive(Debug, Clone)]
pub struct SlotReading {
    pub active: bool,
    pub retained: Option<i64>,
    /// The server's word for what became of the slot's log: `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
    /// How much more log may be written before the slot may be lost; `None` where the server sets no limit.
    pub safe_wal: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct OpenFindings {
    pub kind: String,
    pub severity: String,
    pub open: i64,
}

impl<R> Session<R> {
    pub async fn metrics(&self, worker: &str, slot: &str) -> Result<Reading> {
        let mut reading =
            Reading { worker: self.worker_reading(worker).await?, ..self.captured_reading().await? };
        let sources = self.rows(include_str!("sql/metrics/sources.sql"), &[&worker]).await?;
        reading.workers = self.family().await?;
        reading.jobs = self.job_metrics().await?;
        reading.sources = sources.iter().map(source).collect::<Result<_>>()?;
        for row in self.rows(include_str!("sql/metrics/repairs.sql"), &[&worker]).await? {
            reading.repairs.push(RepairTotal {
                source: row.try_get(0)?,
                reason: row.try_get(1)?,
                repaired: row.try_get(2)?,
            });
        }
        if let Some(row) = self.optional(include_str!("sql/replication/slot.sql"), &[&slot]).await? {
            reading.slot = Some(SlotReading {
                active: row.try_get("active")?,
                retained: row.try_get("retained")?,
                wal_status: row.try_get("wal_status")?,
                safe_wal: row.try_get("safe_wal_size")?,
            });
        }
        let position = self.optional(include_str!("sql/stream/position.sql"), &[&slot]).await?;
        if let Some(row) = position {
            reading.durable_lsn = Some(from_pg(row.try_get("durable_lsn")?).into());
        }
        for row in self.rows(include_str!("sql/metrics/findings.sql"), &[]).await? {
            reading.findings.push(OpenFindings {
                kind: row.try_get(0)?,
                severity: row.try_get(1)?,
                open: row.try_get(2)?,
            });
        }
        reading.dead_letters =
            self.one(include_str!("sql/doctor/dead_letters.sql"), &[]).await?.try_get(0)?;
        Ok(reading)
    }

    /// The state of the lease, which is all that a health check needs.
    pub async fn worker_reading(&self, worker: &str) -> Result<Option<WorkerReading>> {
        let row =
            self.optional(include_str!("sql/metrics/worker.sql"), &[&worker]).await.map_err(not_here)?;
        row.map(|row| {
            Ok(WorkerReading {
                owner: row.try_get("lease_owner")?,
                term: row.try_get("term")?,
                alive: row.try_get("alive")?,
                mode: row.try_get("mode")?,
                ttl_ms: row.try_get("ttl_ms")?,
                lag_ms: row.try_get("lag_ms")?,
                ticks: row.try_get("ticks_total")?,
                slot_budget: row.try_get("slot_budget")?,
                tick_age: row.try_get("tick_age")?,
                ticked_at: row.try_get("ticked_at")?,
            })
        })
        .transpose()
    }

    async fn captured_reading(&self) -> Result<Reading> {
        let mut reading = Reading::default();
        for row in self.rows(include_str!("sql/metrics/captured.sql"), &[]).await.map_err(not_here)? {
            let (kind, waiting): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            if kind == RETRY_KIND {
                reading.retrying = waiting;
            } else {
                reading.captured.push((kind, waiting));
            }
        }
        Ok(reading)
    }
}

fn source(row: &Row) -> Result<SourceReading> {
    Ok(SourceReading {
        source: row.try_get("source_name")?,
        rows_seen: row.try_get("events_seen")?,
        signals: row.try_get("attempts_written")?,
        dead_lettered: row.try_get("dead_lettered")?,
        hot_holes: row.try_get("hot")?,
        cold_holes: row.try_get("cold")?,
        frontier_age: row.try_get("frontier_age")?,
        frontier_behind: row.try_get("frontier_behind")?,
        certificate_age: row.try_get("certificate_age")?,
        frontier_at: row.try_get("frontier_at")?,
        certificate_at: row.try_get("certificate_at")?,
    })
}

fn not_here(e: Error) -> Error {
    match e.state() {
        Some(SqlState::UNDEFINED_TABLE) => {
            Error::of(&NOT_MIGRATED, "the governance views are not here; run `gov-handoff migrate` first")
        }
        _ => e,
    }
}
