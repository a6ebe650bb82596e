//! The job queue as an operator sees it: lists, one job with its history, and decisions.

use crate::core::job::Reply;
use crate::error::codes::NOT_MIGRATED;
use crate::error::{Context, Error, Result};
use crate::store::Session;
use crate::store::jobs::answers;
use crate::store::role::Writes;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// Selects jobs. A field that is `None` does not restrict the selection.
#[derive(Debug, Clone, Default)]
pub struct JobSelection {
    pub status: Option<String>,
    pub kind: Option<String>,
    pub executor: Option<String>,
    pub domain: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ListedJob {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub key: String,
    pub kind: String,
    pub domain: Option<String>,
    pub executor: Option<String>,
    pub status: String,
    pub priority: i32,
    pub attempts: i32,
    pub max_attempts: i32,
    pub lease_owner: Option<String>,
    pub next_run_at: Option<String>,
    pub deadline_at: Option<String>,
    pub last_error: Option<String>,
    pub created_at: String,
}

/// One job, all that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct ShownJob {
    /// The row of `job_queue`, or what the archive kept of it.
    pub job: Value,
    pub archived_at: Option<String>,
    /// Every transition, from the log.
    pub history: Vec<Transition>,
    pub evidence: Vec<Evidence>,
    pub waits_for: Vec<WaitsFor>,
    /// The open dead letter of the job, as `dlq` shows it.
    pub dead_letter: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transition {
    pub at: String,
    /// `None` where the job was enqueued.
    pub from: Option<String>,
    pub to: String,
    pub token: Option<i64>,
    pub executor: Option<String>,
    pub actor: String,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    pub token: i64,
    pub evidence: Value,
    pub at: String,
}

/// A job that must succeed first.
#[derive(Debug, Clone, Serialize)]
pub struct WaitsFor {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub key: Option<String>,
    pub status: Option<String>,
}

/// Among how many jobs a list searches, so that its cost is bounded: the newest, and those in each of the narrow tables.
pub const JOBS_LOOKED_AT: i64 = 20_000;

impl<R> Session<R> {
    pub async fn jobs(&self, selection: &JobSelection, limit: i64) -> Result<Vec<ListedJob>> {
        let JobSelection { status, kind, executor, domain } = selection;
        // Where nothing is searched for, the newest jobs are the answer.
        let searched = [status, kind, executor, domain].iter().any(|field| field.is_some());
        let looked_at = if searched { limit.max(JOBS_LOOKED_AT) } else { limit };
        let params: [&(dyn ToSql + Sync); 6] = [status, kind, executor, domain, &limit, &looked_at];
        let rows =
            self.rows(include_str!("sql/job_queue/list.sql"), &params).await.map_err(reading("the jobs"))?;
        let listed = |row: &tokio_postgres::Row| {
            Ok(ListedJob {
                id: row.try_get("id")?,
                key: row.try_get("idempotency_key")?,
                kind: row.try_get("job_kind")?,
                domain: row.try_get("event_domain")?,
                executor: row.try_get("executor")?,
                status: row.try_get("status")?,
                priority: row.try_get("priority")?,
                attempts: row.try_get("attempts")?,
                max_attempts: row.try_get("max_attempts")?,
                lease_owner: row.try_get("lease_owner")?,
                next_run_at: row.try_get("next_run_at")?,
                deadline_at: row.try_get("deadline_at")?,
                last_error: row.try_get("last_error")?,
                created_at: row.try_get("created_at")?,
            })
        };
        rows.iter().map(listed).collect()
    }

    /// The job of this id or of this key; `None` if there is none.
    pub async fn job(&self, id: Option<Uuid>, key: &str) -> Result<Option<ShownJob>> {
        let found = self.optional(include_str!("sql/job_queue/find.sql"), &[&id, &key]).await;
        let Some(row) = found.map_err(reading("a job"))? else { return Ok(None) };
        let job: Value = row.try_get("job")?;
        let id = job["id"].as_str().and_then(|id| Uuid::parse_str(id).ok()).unwrap_or_default();
        let letter = self.optional(include_str!("sql/job_queue/letter.sql"), &[&id]).await?;
        let letter: Option<Uuid> = letter.map(|row| row.try_get(0)).transpose()?;
        Ok(Some(ShownJob {
            archived_at: row.try_get("archived_at")?,
            history: self.job_history(id).await?,
            evidence: self.job_evidence(id).await?,
            waits_for: self.job_waits_for(id).await?,
            dead_letter: letter.map(|id| id.to_string()),
            job,
        }))
    }

    async fn job_history(&self, id: Uuid) -> Result<Vec<Transition>> {
        let rows = self.rows(include_str!("sql/job_queue/history.sql"), &[&id]).await?;
        let transition = |row: &tokio_postgres::Row| {
            Ok(Transition {
                at: row.try_get("at")?,
                from: row.try_get("from_status")?,
                to: row.try_get("to_status")?,
                token: row.try_get("token")?,
                executor: row.try_get("executor_id")?,
                actor: row.try_get("actor_ref")?,
                reason: row.try_get("reason")?,
            })
        };
        rows.iter().map(transition).collect()
    }

    async fn job_evidence(&self, id: Uuid) -> Result<Vec<Evidence>> {
        let rows = self.rows(include_str!("sql/job_queue/evidence.sql"), &[&id]).await?;
        let evidence = |row: &tokio_postgres::Row| {
            let (token, evidence) = (row.try_get("token")?, row.try_get("evidence")?);
            Ok(Evidence { token, evidence, at: row.try_get("at")? })
        };
        rows.iter().map(evidence).collect()
    }

    async fn job_waits_for(&self, id: Uuid) -> Result<Vec<WaitsFor>> {
        let rows = self.rows(include_str!("sql/job_queue/waits_for.sql"), &[&id]).await?;
        let waits = |row: &tokio_postgres::Row| {
            let (id, key) = (row.try_get("depends_on")?, row.try_get("idempotency_key")?);
            Ok(WaitsFor { id, key, status: row.try_get("status")? })
        };
        rows.iter().map(waits).collect()
    }

    /// Jobs that are dead letters, of this kind or of all.
    pub async fn dead_jobs(&self, kind: Option<&str>) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/job_queue/dead.sql"), &[&kind]).await;
        rows.map_err(reading("the dead letters of jobs"))?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The queue as a whole, and its lanes.
    pub async fn job_health(&self) -> Result<(Value, Vec<Value>)> {
        let queue = self.one(include_str!("sql/job_queue/health.sql"), &[]).await;
        let queue = queue.map_err(reading("the health of the job queue"))?.try_get(0)?;
        let lanes = self.rows(include_str!("sql/job_queue/lanes.sql"), &[]).await?;
        let lanes: Result<_> = lanes.iter().map(|row| Ok(row.try_get(0)?)).collect();
        Ok((queue, lanes?))
    }
}

impl<R: Writes> Session<R> {
    pub async fn cancel_jobs(
        &self,
        ids: &[Uuid],
        reason: &str,
        actor: Option<&str>,
    ) -> Result<Vec<(Uuid, Reply)>> {
        let rows = self.rows(include_str!("sql/job_queue/cancel.sql"), &[&ids, &reason, &actor]).await;
        answers(&rows.context("cancelling jobs")?)
    }

    /// Queues dead letters again; they keep their ids, keys and histories.
    pub async fn redrive(&self, ids: &[Uuid], actor: Option<&str>) -> Result<Vec<(Uuid, Reply)>> {
        let rows = self.rows(include_str!("sql/job_queue/redrive.sql"), &[&ids, &actor]).await;
        answers(&rows.context("queueing jobs again")?)
    }
}

/// A missing table means a missing migration.
pub(super) fn reading(what: &str) -> impl Fn(Error) -> Error {
    move |e| match e.state() {
        Some(SqlState::UNDEFINED_TABLE) => Error::of(
            &NOT_MIGRATED,
            "the tables of the job queue are not here; run `gov-handoff migrate` first",
        ),
        _ => e.context(format_args!("reading {what}")),
    }
}

fn as_text<S: Serializer>(id: &Uuid, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
