//! The gates of the job queue for those who enqueue and those who execute. [`queue`](crate::queue) is made of them.

use crate::core::job::{Enqueued, Job, NewJob, Reply, Token};
use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::role::Writes;
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

impl<R: Writes> Session<R> {
    /// Enqueues jobs, all in one transaction. One answer for each job, in order.
    pub async fn enqueue_jobs(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        let jobs = serde_json::to_value(jobs)?;
        let rows = self.rows(include_str!("sql/jobs/enqueue.sql"), &[&jobs]).await;
        rows.context("enqueueing jobs")?.iter().map(enqueued).collect()
    }

    /// Enqueues the jobs of a graph: all of them, or none. The items are as the gate takes them; one answer for each.
    pub async fn emit_graph(&self, graph: &Value) -> Result<Vec<Enqueued>> {
        let rows = self.rows(include_str!("sql/jobs/emit_graph.sql"), &[graph]).await;
        rows.context("enqueueing a graph of jobs")?.iter().map(enqueued).collect()
    }

    /// The error for a job that was refused. The database is asked whether a grant is missing: the reason is for people.
    pub async fn refusal(&self, executor: &str, refused: String) -> Error {
        let row = self.one(include_str!("sql/jobs/may_enqueue.sql"), &[&executor]).await;
        match row.and_then(|row| Ok(row.try_get::<_, bool>(0)?)) {
            Ok(true) => Error::new(Kind::Refused, refused),
            Ok(false) => Error::new(Kind::Privilege, refused),
            Err(e) => e.context(refused),
        }
    }

    /// Says that the executor lives. The first time binds an executor without a role to the role of this session.
    pub async fn executor_beat(&self, executor: &str) -> Result<()> {
        self.one(include_str!("sql/jobs/beat.sql"), &[&executor]).await?;
        Ok(())
    }

    /// From now on jobs that become ready wake this session; see [`woken`](Self::woken).
    pub async fn listen_to_jobs(&self) -> Result<()> {
        self.answer(self.client.batch_execute(include_str!("sql/jobs/listen.sql"))).await
    }

    /// With `start`, the jobs are in progress when they come back; without, they are leased.
    pub async fn claim_jobs(
        &self,
        executor: &str,
        limit: usize,
        lease: Duration,
        start: bool,
    ) -> Result<Vec<Job>> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let params: [&(dyn ToSql + Sync); 4] = [&executor, &limit, &milliseconds(lease), &start];
        self.rows(include_str!("sql/jobs/claim.sql"), &params).await?.iter().map(job).collect()
    }

    pub async fn start_jobs(&self, ids: &[Uuid], tokens: &[i64]) -> Result<Vec<(Uuid, Reply)>> {
        answers(&self.rows(include_str!("sql/jobs/start.sql"), &[&ids, &tokens]).await?)
    }

    /// Extends the leases of jobs, and says that the executor lives.
    pub async fn heartbeat_jobs(
        &self,
        executor: &str,
        ids: &[Uuid],
        tokens: &[i64],
        extend: Duration,
    ) -> Result<Vec<(Uuid, Reply)>> {
        let params: [&(dyn ToSql + Sync); 4] = [&executor, &ids, &tokens, &milliseconds(extend)];
        answers(&self.rows(include_str!("sql/jobs/heartbeat.sql"), &params).await?)
    }

    /// The evidence is kept with each of the jobs.
    pub async fn complete_jobs(
        &self,
        ids: &[Uuid],
        tokens: &[i64],
        evidence: &Value,
    ) -> Result<Vec<(Uuid, Reply)>> {
        answers(&self.rows(include_str!("sql/jobs/complete.sql"), &[&ids, &tokens, evidence]).await?)
    }

    /// Ends an attempt that did not succeed. Without `retry` the job becomes a dead letter at once.
    pub async fn fail_job(&self, id: Uuid, token: Token, error: &str, retry: bool) -> Result<Reply> {
        let params: [&(dyn ToSql + Sync); 4] = [&id, &token.0, &error, &retry];
        Ok(answer(&self.one(include_str!("sql/jobs/fail.sql"), &params).await?)?.1)
    }

    /// Gives jobs back; that costs no attempt.
    pub async fn release_jobs(&self, ids: &[Uuid], tokens: &[i64]) -> Result<Vec<(Uuid, Reply)>> {
        answers(&self.rows(include_str!("sql/jobs/release.sql"), &[&ids, &tokens]).await?)
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn answers(rows: &[Row]) -> Result<Vec<(Uuid, Reply)>> {
    rows.iter().map(answer).collect()
}

pub(super) fn answer(row: &Row) -> Result<(Uuid, Reply)> {
    let outcome: String = row.try_get("outcome")?;
    let answer = Reply::read(&outcome, row.try_get("reason")?);
    let answer = answer.ok_or_else(|| {
        Error::new(Kind::Internal, format!("a gate answered `{outcome}`, which is unknown"))
    })?;
    Ok((row.try_get("job_id")?, answer))
}

fn enqueued(row: &Row) -> Result<Enqueued> {
    let reason: Option<String> = row.try_get("reason")?;
    Ok(match (row.try_get::<_, Option<Uuid>>("job_id")?, row.try_get::<_, String>("outcome")?.as_str()) {
        (Some(id), "done") if reason.is_none() => Enqueued::New(id),
        (Some(id), "done") => Enqueued::Known(id),
        _ => Enqueued::Refused(reason.unwrap_or_default()),
    })
}

fn job(row: &Row) -> Result<Job> {
    let deadline: Option<i64> = row.try_get("deadline_at")?;
    Ok(Job {
        id: row.try_get("job_id")?,
        token: Token(row.try_get("token")?),
        kind: row.try_get("job_kind")?,
        domain: row.try_get("event_domain")?,
        payload_ref: row.try_get("payload_ref")?,
        payload: row.try_get("safe_payload")?,
        attempt: row.try_get("attempt")?,
        lease_until: time(row.try_get("lease_until")?)?,
        deadline_at: deadline.map(time).transpose()?,
    })
}

fn time(micros: i64) -> Result<DateTime<Utc>> {
    let out_of_range =
        || Error::new(Kind::Internal, format!("{micros} microseconds are out of range for a time"));
    DateTime::from_timestamp_micros(micros).ok_or_else(out_of_range)
}
