//! What the periodic full audit asks: which source is due, and that candidates past their time are checked again.

use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::Instant;
use serde::Serialize;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// A source and when its next full audit is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSource {
    pub source: String,
    /// Zero when it is due.
    pub due_in: Duration,
}

/// The sources by the date of their next full audit, and the minute of the server's day in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub sources: Vec<DueSource>,
    pub minute: u16,
}

/// When a source was last audited in full, what was found, and when the next audit is due.
#[derive(Debug, Serialize)]
pub struct AuditStatus {
    pub source: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    /// `None` if no audit is planned (`audit_every` is zero).
    pub due_at: Option<String>,
    pub rows: Option<i64>,
    pub missing: Option<i64>,
    pub doubled: Option<i64>,
    pub orphans: Option<i64>,
    /// An audit is running, or was interrupted and goes on.
    pub unfinished: bool,
    pub rows_so_far: Option<i64>,
}

/// One page of the walk through the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revalidated {
    pub examined: u64,
    pub marked: u64,
    /// When the next walk is due; `None` while pages of this one are left.
    pub due_in: Option<Duration>,
}

impl<R> Session<R> {
    pub async fn audit_schedule(&self, intake: &str, every: Duration) -> Result<Schedule> {
        let rows = self
            .rows(include_str!("sql/audit/schedule.sql"), &[&intake, &millis(every)])
            .await
            .context("reading which audits are due")?;
        let mut schedule = Schedule { sources: Vec::new(), minute: 0 };
        for row in &rows {
            schedule.minute = u16::try_from(row.try_get::<_, i32>("minute")?).unwrap_or(0);
            let due_in = positive(row.try_get("due_in")?);
            schedule.sources.push(DueSource { source: row.try_get("source_name")?, due_in });
        }
        Ok(schedule)
    }

    pub async fn audit_status(&self, intake: &str, every: Duration) -> Result<Vec<AuditStatus>> {
        let rows = self
            .rows(include_str!("sql/audit/status.sql"), &[&intake, &millis(every)])
            .await
            .context("reading when the sources were audited")?;
        let at = |row: &Row, name: &str| -> Result<Option<String>> {
            Ok(row.try_get::<_, Option<Instant>>(name)?.map(|at| at.0.to_string()))
        };
        rows.iter()
            .map(|row| {
                Ok(AuditStatus {
                    source: row.try_get("source_name")?,
                    started_at: at(row, "started_at")?,
                    ended_at: at(row, "ended_at")?,
                    due_at: at(row, "due_at")?,
                    rows: row.try_get("rows_checked")?,
                    missing: row.try_get("missing")?,
                    doubled: row.try_get("doubled")?,
                    orphans: row.try_get("orphans")?,
                    unfinished: row.try_get("unfinished")?,
                    rows_so_far: row.try_get("rows_so_far")?,
                })
            })
            .collect()
    }
}

impl<R: Writes> Session<R> {
    /// Sends a page of candidates that are past their time back to the input gate.
    pub async fn revalidate_candidates(
        &self,
        lease: &Lease,
        every: Duration,
        limit: i64,
    ) -> Result<Revalidated> {
        let (every, limit) = (millis(every), i32::try_from(limit).unwrap_or(i32::MAX));
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &every, &limit];
        let row = self
            .one(include_str!("sql/audit/revalidate.sql"), &params)
            .await
            .context("having candidates checked again")?;
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok(Revalidated {
            examined: count(row.try_get("examined")?),
            marked: count(row.try_get("marked")?),
            due_in: row.try_get::<_, Option<i64>>("due_in")?.map(positive),
        })
    }
}

fn positive(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn millis(span: Duration) -> i64 {
    // A thousand years, as "never", still fit into an interval.
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX).min(31_536_000_000_000)
}
