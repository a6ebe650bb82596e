//! Staged rows, and the policy by which they are retried.

use crate::core::retry::RetryPolicy;
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde_json::Value;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A rejected row that is going to be staged. It has address fields only.
#[derive(Debug, Clone, PartialEq)]
pub struct Staging<'a> {
    pub table: &'a str,
    pub id: Uuid,
    pub subject: Uuid,
    pub letter: &'a str,
    pub address: &'a str,
    pub actor: &'a str,
    /// Why the database rejected the row, without a value of the row.
    pub error: &'a str,
    pub payload: &'a Value,
    pub delay: Duration,
    /// The version of the definition that mapped the row.
    pub version: Option<Uuid>,
}

/// A staged row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    pub id: Uuid,
    pub key: String,
    /// How often the row was rejected so far.
    pub attempts: u32,
    pub last_error: String,
}

impl<R> Session<R> {
    /// Sources that have staged rows but are no longer registered with any worker.
    pub async fn staged_of_nobody(&self) -> Result<Vec<String>> {
        let rows = self.rows(include_str!("sql/retry/of_nobody.sql"), &[]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The staged rows of a source after `after`, in the order of their identities: all of them, or only those that are
    /// due.
    pub async fn staged(&self, source: &str, all: bool, after: Uuid, limit: i64) -> Result<Vec<Staged>> {
        let rows = self
            .rows(include_str!("sql/retry/staged.sql"), &[&source, &all, &after, &limit])
            .await
            .context("reading what is staged")?;
        rows.iter()
            .map(|row| {
                Ok(Staged {
                    id: row.try_get(0)?,
                    key: row.try_get(1)?,
                    attempts: row.try_get::<_, i32>(2)?.try_into().unwrap_or(0),
                    last_error: row.try_get::<_, Option<String>>(3)?.unwrap_or_default(),
                })
            })
            .collect()
    }

    /// How long until the next staged row is due; `None` when nothing is staged.
    pub async fn next_retry(&self) -> Result<Option<Duration>> {
        let row = self.one(include_str!("sql/retry/next.sql"), &[]).await?;
        let ms: Option<i64> = row.try_get(0)?;
        Ok(ms.map(|ms| Duration::from_millis(ms.try_into().unwrap_or(0))))
    }
}

impl<R: Writes> Session<R> {
    /// The retry policy in `dot_config`. A value that cannot be used raises a finding.
    pub async fn retry_policy(&self) -> Result<RetryPolicy> {
        let d = RetryPolicy::DEFAULT;
        let number = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 3] =
            [&i64::from(d.max_attempts), &number(d.base_ms), &number(d.cap_ms)];
        let row = self.one(include_str!("sql/retry/policy.sql"), &params).await.context("retry policy")?;
        let read = |i| Ok::<u64, crate::error::Error>(row.try_get::<_, i64>(i)?.try_into().unwrap_or(0));
        Ok(RetryPolicy {
            max_attempts: read(0)?.try_into().unwrap_or(u32::MAX),
            base_ms: read(1)?,
            cap_ms: read(2)?,
        })
    }

    /// Stages a row. True if the row was not staged before and had no dead letter.
    pub async fn stage(&self, lease: &Lease, row: &Staging<'_>) -> Result<bool> {
        let delay = millis(row.delay);
        let params: [&(dyn ToSql + Sync); 13] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &row.table,
            &row.id,
            &row.subject,
            &row.letter,
            &row.address,
            &row.actor,
            &row.error,
            row.payload,
            &delay,
            &row.version,
        ];
        Ok(self.one(include_str!("sql/retry/stage.sql"), &params).await?.try_get(0)?)
    }

    /// Records that the row was rejected for the `attempts`th time. It is retried after `delay`.
    pub async fn retry_again(
        &self,
        lease: &Lease,
        id: Uuid,
        attempts: u32,
        error: &str,
        delay: Duration,
    ) -> Result<()> {
        let (attempts, delay) = (i32::try_from(attempts).unwrap_or(i32::MAX), millis(delay));
        let params: [&(dyn ToSql + Sync); 7] =
            [&lease.worker, &lease.owner, &lease.term, &id, &attempts, &error, &delay];
        self.one(include_str!("sql/retry/again.sql"), &params).await?;
        Ok(())
    }

    /// Removes a staged row, because these signals of the row are recorded.
    pub async fn retry_done(&self, lease: &Lease, id: Uuid, signals: &[Uuid]) -> Result<()> {
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &id, &signals];
        self.one(include_str!("sql/retry/done.sql"), &params).await?;
        Ok(())
    }
}

fn millis(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap_or(i64::MAX)
}
