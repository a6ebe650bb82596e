//! What audits read and keep: recorded signals in the order of their ids, progress, and the names of what was found wrong.

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

/// What an audit says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discrepancy {
    /// A signal of it is nowhere.
    Missing,
    /// A signal of it stands beside the one that it should have.
    Doubled,
    /// No row, or nothing that a row comes to, is behind the signal.
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
pub enum Place {
    Outbox,
    Pending,
}

/// One recorded signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub id: Uuid,
    pub kind: String,
    /// As it stands there, whoever wrote it.
    pub key: Option<String>,
    pub object_ref: Option<String>,
    /// Whether it names the source at all; only the last of a stretch may not.
    pub named: bool,
    /// In the outbox and waiting as well, or there again after retention took it.
    pub twice: bool,
    /// Retention took every signal that its key had.
    pub key_retired: bool,
}

/// What one chunk of an audit leaves, in one commit.
pub struct Checkpoint<'a> {
    pub full: bool,
    pub after: Option<&'a str>,
    pub progress: &'a Value,
    /// The first of its audit: the names of the last one are forgotten.
    pub anew: bool,
    pub names: &'a [(Discrepancy, String)],
}

fn depth(full: bool) -> &'static str {
    if full { "full" } else { "recent" }
}

impl<R> Session<R> {
    /// The next signals behind `after` that name the source, and the last one of the stretch whether it does or not. None
    /// when there are no more.
    pub async fn recorded(
        &self,
        source: &Source,
        place: Place,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Recorded>> {
        let sql = match place {
            Place::Outbox => include_str!("sql/audit/outbox_stretch.sql"),
            Place::Pending => include_str!("sql/audit/pending_stretch.sql"),
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

    /// Those of these integer keys that no pass of `worker` has read.
    pub async fn never_read(&self, worker: &str, source: &str, numbers: &[i64]) -> Result<Vec<i64>> {
        let rows = self.rows(include_str!("sql/audit/never_read.sql"), &[&worker, &source, &numbers]).await?;
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

    /// Tells `each` of the keys that the last audit found, as they arrive: there may be as many as there are rows.
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

    /// That the audit is over and, unless it was a check, what it certifies: one commit.
    pub async fn finish_audit(
        &self,
        lease: &Lease,
        source: &str,
        full: bool,
        progress: &Value,
        intake: &str,
        certificate: Option<&Certificate>,
    ) -> Result<()> {
        let certificate = certificate.map(serde_json::to_value).transpose()?;
        let params: [&(dyn ToSql + Sync); 8] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &source,
            &depth(full),
            progress,
            &intake,
            &certificate,
        ];
        self.one(include_str!("sql/audit/finish.sql"), &params).await.context("ending the audit")?;
        Ok(())
    }
}
