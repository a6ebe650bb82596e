//! What audits read and store: recorded signals in the order of their ids, progress, and the keys with a discrepancy.

use crate::core::certificate::Certificate;
use crate::core::handoff::Source;
use crate::error::{Context, Result};
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::{Session, quote};
use futures_util::TryStreamExt;
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// What an audit found wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discrepancy {
    /// A signal of the row is recorded nowhere.
    Missing,
    /// A signal exists beside the row's own signal.
    Doubled,
    /// No row belongs to the signal, or the row does not map to it.
    Orphan,
}

impl Discrepancy {
    pub const ALL: [Self; 3] = [Self::Missing, Self::Doubled, Self::Orphan];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Doubled => "doubled",
            Self::Orphan => "orphan",
        }
    }
}

/// Where signals are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTable {
    Outbox,
    Pending,
}

/// One recorded signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub id: Uuid,
    pub kind: String,
    /// The key as the signal states it. A program other than the daemon may have written the signal.
    pub key: Option<String>,
    pub object_ref: Option<String>,
    /// Whether the signal names the source. Only the last signal of a page may not name it.
    pub named: bool,
    /// The signal is in the outbox and also waits, or it is recorded again after it was retired.
    pub twice: bool,
    /// Every signal of the key was retired.
    pub key_retired: bool,
}

/// What one chunk of an audit stores, in one commit.
pub struct Checkpoint<'a> {
    pub full: bool,
    pub after: Option<&'a str>,
    pub progress: &'a Value,
    /// This is the first chunk of its audit: the keys that the previous audit stored are deleted.
    pub anew: bool,
    pub names: &'a [(Discrepancy, String)],
}

fn depth(full: bool) -> &'static str {
    if full { "full" } else { "recent" }
}

impl<R> Session<R> {
    /// The next signals after `after` that name the source, and the last signal of the page even if it does not. Empty
    /// at the end.
    pub async fn recorded(
        &self,
        source: &Source,
        place: SignalTable,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Recorded>> {
        let sql = match place {
            SignalTable::Outbox => include_str!("sql/audit/outbox_stretch.sql"),
            SignalTable::Pending => include_str!("sql/audit/pending_stretch.sql"),
        };
        let sql = quote::fill(sql, &[("beyond", if after.is_some() { ">" } else { ">=" })]);
        let (from, table) = (after.unwrap_or_default(), source.definition.table());
        let rows = self
            .rows(&sql, &[&source.name(), &table, &from, &limit])
            .await
            .context(format!("reading the signals of {}", source.name()))?;
        let signal = |row: &tokio_postgres::Row| {
            Ok(Recorded {
                id: row.try_get("id")?,
                kind: row.try_get("kind")?,
                key: row.try_get("source_key")?,
                object_ref: row.try_get("object_ref")?,
                named: row.try_get("named")?,
                twice: row.try_get("twice")?,
                key_retired: row.try_get::<_, Option<bool>>("key_retired")?.unwrap_or_default(),
            })
        };
        rows.iter().map(signal).collect()
    }

    /// Returns those of these integer keys that no pass of `worker` has read.
    pub async fn never_read(&self, worker: &str, source: &str, numbers: &[i64]) -> Result<Vec<i64>> {
        let rows = self.rows(include_str!("sql/audit/never_read.sql"), &[&worker, &source, &numbers]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The registers that excuse rows of this source, where they are not what the gates made of them.
    pub async fn changed_registers(&self, source: &str) -> Result<Vec<String>> {
        let rows = self.rows(include_str!("sql/audit/registers.sql"), &[&source]).await;
        let rows = rows.context(format!("reading the registers of {source}"))?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn audit_progress(
        &self,
        worker: &str,
        source: &str,
    ) -> Result<Option<(Option<String>, Value)>> {
        let row = self.optional(include_str!("sql/audit/progress.sql"), &[&worker, &source]).await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    /// Calls `each` with every key that the last audit found, one at a time. There may be as many keys as rows.
    pub async fn audit_names(
        &self,
        source: &str,
        full: bool,
        verdict: Discrepancy,
        limit: i64,
        mut each: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let statement = self.statement(include_str!("sql/audit/names.sql")).await?;
        let params: [&(dyn ToSql + Sync); 4] = [&source, &depth(full), &verdict.name(), &limit];
        let names = self.answer(self.client.query_raw(&statement, params)).await?;
        let mut names = std::pin::pin!(names);
        while let Some(row) = self.answer(names.try_next()).await? {
            each(row.try_get(0)?)?;
        }
        Ok(())
    }
}

impl<R: Writes> Session<R> {
    pub async fn keep_audit(&self, lease: &Lease, source: &str, checkpoint: &Checkpoint<'_>) -> Result<()> {
        let Checkpoint { full, after, progress, anew, names } = checkpoint;
        let verdicts: Vec<_> = names.iter().map(|(verdict, _)| verdict.name()).collect();
        let keys: Vec<_> = names.iter().map(|(_, key)| key.as_str()).collect();
        let params: [&(dyn ToSql + Sync); 10] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &source,
            &depth(*full),
            after,
            progress,
            anew,
            &verdicts,
            &keys,
        ];
        self.one(include_str!("sql/audit/checkpoint.sql"), &params)
            .await
            .context("keeping the audit's progress")?;
        Ok(())
    }

    /// Records in one commit that the audit has ended and, unless it was only a check, its certificate.
    pub async fn finish_audit(
        &self,
        lease: &Lease,
        source: &Source,
        full: bool,
        progress: &Value,
        intake: &str,
        certificate: Option<&Certificate>,
    ) -> Result<()> {
        let certificate = certificate.map(serde_json::to_value).transpose()?;
        let params: [&(dyn ToSql + Sync); 9] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &source.name(),
            &depth(full),
            progress,
            &intake,
            &certificate,
            &source.version,
        ];
        self.one(include_str!("sql/audit/finish.sql"), &params).await.context("ending the audit")?;
        Ok(())
    }
}
