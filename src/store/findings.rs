//! Findings in `system_issues`, and the daemon's own rows in `registry_changelog`.

use crate::core::finding::Severity;
use crate::error::codes::NOT_MIGRATED;
use crate::error::{Error, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// Something that an operator should know. It never contains a value of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub kind: &'static str,
    /// Findings with the same key are one row with a count.
    pub key: String,
    pub severity: Severity,
    pub detail: Value,
}

/// A finding as it is recorded.
#[derive(Debug, Serialize)]
pub struct Issue {
    pub kind: String,
    pub severity: Severity,
    pub key: String,
    pub detail: Value,
    pub occurrences: i64,
    pub first_seen_at: String,
    pub last_seen_at: String,
    pub resolved_at: Option<String>,
    pub resolution: Option<String>,
}

impl Issue {
    #[must_use]
    pub fn is_grave(&self) -> bool {
        self.resolved_at.is_none() && self.severity >= Severity::High
    }
}

impl<R> Session<R> {
    /// Open findings come first, ordered by severity. Resolved findings are included only if `resolved` is set.
    pub async fn findings(&self, kind: Option<&str>, resolved: bool, limit: i64) -> Result<Vec<Issue>> {
        let rows = self
            .rows(include_str!("sql/findings/list.sql"), &[&kind, &resolved, &limit])
            .await
            .map_err(|e| match e.state() {
                Some(SqlState::UNDEFINED_TABLE) => Error::of(
                    &NOT_MIGRATED,
                    "the governance tables are not here; run `gov-handoff migrate` first",
                ),
                _ => e.context("reading the findings"),
            })?;
        rows.iter()
            .map(|row| {
                Ok(Issue {
                    kind: row.try_get("kind")?,
                    severity: Severity::of(row.try_get("severity")?),
                    key: row.try_get("coalesce_key")?,
                    detail: row.try_get("detail")?,
                    occurrences: row.try_get("occurrence_count")?,
                    first_seen_at: row.try_get("first_seen_at")?,
                    last_seen_at: row.try_get("last_seen_at")?,
                    resolved_at: row.try_get("resolved_at")?,
                    resolution: row.try_get("resolution")?,
                })
            })
            .collect()
    }

    /// Every kind of finding that is recorded in this database.
    pub async fn finding_kinds(&self) -> Result<Vec<String>> {
        let rows = self.rows(include_str!("sql/findings/kinds.sql"), &[]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl<R: Writes> Session<R> {
    pub async fn raise(&self, finding: &Finding) -> Result<()> {
        let Finding { kind, key, severity, detail } = finding;
        self.one(include_str!("sql/findings/raise.sql"), &[kind, key, &severity.name(), detail, &false])
            .await?;
        Ok(())
    }

    /// As [`raise`](Self::raise), for a cause that is checked repeatedly: it is counted once in `every`, or when its
    /// severity rises.
    pub async fn sustain(&self, finding: &Finding, every: Duration) -> Result<()> {
        let Finding { kind, key, severity, detail } = finding;
        let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
        self.one(include_str!("sql/findings/sustain.sql"), &[kind, key, &severity.name(), detail, &every])
            .await?;
        Ok(())
    }

    /// Resolves a finding. True if it was open.
    pub async fn resolve(&self, key: &str, resolution: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/findings/resolve.sql"), &[&key, &resolution]).await?.try_get(0)?)
    }

    /// Writes one row to `registry_changelog`. The row is marked as ours, so it is never handed off.
    pub async fn audit_note(&self, lease: &Lease, source: &str, action: &str) -> Result<()> {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&lease.worker, &lease.owner, &lease.term, &source, &action];
        self.one(include_str!("sql/findings/audit_note.sql"), &params).await?;
        Ok(())
    }
}
