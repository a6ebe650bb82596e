//! Findings in `system_issues`, and our audit rows.

use crate::error::Result;
use crate::store::Store;
use crate::store::lease::Lease;
use serde_json::Value;

/// Something the operator should see. It never holds a value of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub kind: &'static str,
    /// Findings of one key are one row with a count.
    pub key: String,
    pub severity: &'static str,
    pub detail: Value,
}

impl Store {
    pub async fn raise(&self, finding: &Finding) -> Result<()> {
        let Finding { kind, key, severity, detail } = finding;
        self.one(include_str!("sql/finding_raise.sql"), &[kind, key, severity, detail, &false]).await?;
        Ok(())
    }

    /// True if it was open.
    pub async fn resolve(&self, key: &str, resolution: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/finding_resolve.sql"), &[&key, &resolution]).await?.try_get(0)?)
    }

    /// One row in `registry_changelog`, marked as ours so that it is never captured.
    pub async fn audit_note(&self, lease: &Lease, source: &str, action: &str) -> Result<()> {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&lease.worker, &lease.owner, &lease.term, &source, &action];
        self.one(include_str!("sql/audit_note.sql"), &params).await?;
        Ok(())
    }
}
