//! Dead letters: recording, listing and resolving them.

use crate::error::codes::NOT_MIGRATED;
use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A row that becomes a dead letter.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLetter<'a> {
    pub source: &'a str,
    /// The identity under which the row is staged, if it is staged.
    pub staged: Uuid,
    pub subject: Uuid,
    pub letter: &'a str,
    pub code: &'a str,
    pub detail: &'a str,
    pub attempts: u32,
    pub snapshot: &'a Value,
    /// The signals that the row maps to.
    pub signals: &'a [Uuid],
    /// The version of the definition that mapped the row; `None` for a row that no definition reads now.
    pub version: Option<Uuid>,
}

/// Selects dead letters. A field that is `None` does not restrict the selection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    pub source: Option<String>,
    pub code: Option<String>,
    /// Failed at or after this time.
    pub since: Option<String>,
    pub ids: Option<Vec<Uuid>>,
    pub resolved_too: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Letter {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub worker: String,
    pub source: String,
    pub source_key: String,
    pub canonical_address: String,
    pub kinds: Value,
    pub failure_code: Option<String>,
    pub failure_detail: Option<String>,
    pub attempts: i32,
    pub first_failed_at: String,
    pub last_failed_at: String,
    pub resolved_at: Option<String>,
    pub resolution: Option<String>,
    pub resolved_by: Option<String>,
    pub reason: Option<String>,
}

impl<R> Session<R> {
    pub async fn dead_letters(&self, selection: &Selection) -> Result<Vec<Letter>> {
        let Selection { source, code, since, ids, resolved_too } = selection;
        let params: [&(dyn ToSql + Sync); 5] = [source, code, since, ids, resolved_too];
        let rows =
            self.rows(include_str!("sql/dead_letter/list.sql"), &params).await.map_err(|e| {
                match (e.kind, e.state(), since) {
                    (Kind::Data, _, Some(since)) => Error::config(format!(
                        "`{since}` is no time; write for example 2026-11-16 or 2026-11-16T12:00:00Z"
                    )),
                    (_, Some(SqlState::UNDEFINED_TABLE), _) => Error::of(
                        &NOT_MIGRATED,
                        "the governance tables are not here; run `gov-handoff migrate` first",
                    ),
                    _ => e.context("reading the dead letters"),
                }
            })?;
        rows.iter().map(Letter::from_row).collect()
    }
}

impl<R: Writes> Session<R> {
    /// Records a dead letter and removes the staged row, in one commit. True if the row had no dead letter before, or
    /// only a replayed one.
    pub async fn put_dead_letter(&self, lease: &Lease, letter: &NewLetter<'_>) -> Result<bool> {
        let attempts = i32::try_from(letter.attempts).unwrap_or(i32::MAX);
        let params: [&(dyn ToSql + Sync); 13] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &letter.source,
            &letter.staged,
            &letter.subject,
            &letter.letter,
            &letter.code,
            &letter.detail,
            &attempts,
            letter.snapshot,
            &letter.signals,
            &letter.version,
        ];
        Ok(self.one(include_str!("sql/dead_letter/put.sql"), &params).await?.try_get(0)?)
    }

    /// Discards or supersedes open letters. Returns those that were open.
    pub async fn resolve_dead_letters(
        &self,
        ids: &[Uuid],
        resolution: &str,
        reason: &str,
        actor: Option<&str>,
    ) -> Result<Vec<Uuid>> {
        let params: [&(dyn ToSql + Sync); 4] = [&ids, &resolution, &reason, &actor];
        Ok(self.one(include_str!("sql/dead_letter/resolve.sql"), &params).await?.try_get(0)?)
    }

    /// Queues the jobs of these letters again. Returns the letters whose jobs were still dead letters.
    pub async fn redrive_jobs(&self, letters: &[Uuid], actor: Option<&str>) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/dead_letter/redrive.sql"), &[&letters, &actor]).await;
        rows.context("queueing jobs again")?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Closes a letter whose signals are recorded, which the gate verifies. False if the letter was closed already.
    pub async fn dead_letter_replayed(
        &self,
        lease: &Lease,
        id: Uuid,
        signals: &[Uuid],
        reason: Option<&str>,
        actor: Option<&str>,
    ) -> Result<bool> {
        let params: [&(dyn ToSql + Sync); 7] =
            [&lease.worker, &lease.owner, &lease.term, &id, &signals, &reason, &actor];
        let row = self.one(include_str!("sql/dead_letter/replayed.sql"), &params).await;
        Ok(row.context("closing a dead letter")?.try_get(0)?)
    }

    /// Records that the row was rejected again during a replay.
    pub async fn dead_letter_failed(&self, lease: &Lease, id: Uuid, code: &str, detail: &str) -> Result<()> {
        let params: [&(dyn ToSql + Sync); 6] =
            [&lease.worker, &lease.owner, &lease.term, &id, &code, &detail];
        self.one(include_str!("sql/dead_letter/failed.sql"), &params).await?;
        Ok(())
    }
}

impl Letter {
    /// The letter of a job, and not of a handoff.
    #[must_use]
    pub fn is_of_a_job(&self) -> bool {
        self.worker == "job_queue"
    }

    fn from_row(row: &tokio_postgres::Row) -> Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            worker: row.try_get("worker_name")?,
            source: row.try_get::<_, Option<String>>("source")?.unwrap_or_default(),
            source_key: row.try_get::<_, Option<String>>("source_key")?.unwrap_or_default(),
            canonical_address: row.try_get("canonical_address")?,
            kinds: row.try_get("kinds")?,
            failure_code: row.try_get("failure_code")?,
            failure_detail: row.try_get("failure_detail")?,
            attempts: row.try_get("attempts")?,
            first_failed_at: row.try_get("first_failed_at")?,
            last_failed_at: row.try_get("last_failed_at")?,
            resolved_at: row.try_get("resolved_at")?,
            resolution: row.try_get("resolution")?,
            resolved_by: row.try_get("resolved_by")?,
            reason: row.try_get("reason")?,
        })
    }
}

fn as_text<S: serde::Serializer>(id: &Uuid, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
