//! What the page and `GET /api/status` show beside the [`Status`]: the mode's history, verdicts, dirty groups, feed and readers, jobs
//! by lane, executors, dead letters and certificates. Every list is short, and every count stops at a limit.

use crate::error::Result;
use crate::store::Session;
use crate::store::job_lanes::{ExecutorHealth, JobLane};
use crate::store::status::Status;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tokio_postgres::Row;

/// One look at everything.
#[derive(Debug, Serialize)]
pub struct Overview {
    pub taken_at: String,
    pub database: String,
    pub server: String,
    #[serde(flatten)]
    pub status: Status,
    /// The newest change first.
    pub mode_history: Vec<ModeChange>,
    pub coverage: Vec<Coverage>,
    /// Some of the dirty groups.
    pub dirty: Vec<DirtyGroup>,
    pub feed: Option<Feed>,
    pub readers: Vec<ReaderMark>,
    /// Lanes that have jobs, the fullest first.
    pub lanes: Vec<JobLane>,
    pub executors: Vec<ExecutorHealth>,
    pub overdue: Vec<OverdueJob>,
    /// The oldest open dead letters, of rows and of jobs.
    pub letters: Vec<OpenLetter>,
    /// The latest certificate of each source, as `certificates --json` shows it.
    pub certificates: Vec<Value>,
}

#[derive(Debug, Serialize)]
pub struct ModeChange {
    pub at: String,
    pub mode: Option<String>,
    pub reason: Option<String>,
}

/// How many rows, candidates or groups are in a class. `exact` is false for an estimate of the server's.
#[derive(Debug, Serialize)]
pub struct Coverage {
    pub measure: String,
    pub class: String,
    pub count: i64,
    pub exact: bool,
}

#[derive(Debug, Serialize)]
pub struct DirtyGroup {
    pub group: String,
    pub reason: Option<String>,
    pub since: Option<String>,
    pub changes: Option<i64>,
    pub members: Option<i64>,
    pub verdict: Option<String>,
}

/// The event feed: the highest position that retention removed, the highest there is, and events without a position.
#[derive(Debug, Serialize)]
pub struct Feed {
    pub removed_through: i64,
    pub last: i64,
    pub waiting: i64,
}

/// A reader's watermark in a stream, and how many events are above it, counted up to a thousand.
#[derive(Debug, Serialize)]
pub struct ReaderMark {
    pub actor: String,
    pub domain: String,
    pub stream: String,
    pub through: i64,
    pub above: i64,
    pub at_least: bool,
    pub updated_at: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct OverdueJob {
    pub job: String,
    pub kind: Option<String>,
    pub domain: Option<String>,
    pub executor: Option<String>,
    pub state: Option<String>,
    pub deadline: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct OpenLetter {
    pub id: String,
    pub worker: String,
    pub source: Option<String>,
    pub key: String,
    pub code: String,
    pub attempts: i32,
    pub since: Option<String>,
}

/// The statements of this file that take no parameter and those that take the worker's name: a test explains each of them.
pub const STATEMENTS: [(&str, &str); 8] = [
    ("here", include_str!("sql/overview/here.sql")),
    ("modes", include_str!("sql/overview/modes.sql")),
    ("verdicts", include_str!("sql/overview/verdicts.sql")),
    ("dirty", include_str!("sql/overview/dirty.sql")),
    ("feed", include_str!("sql/overview/feed.sql")),
    ("readers", include_str!("sql/overview/readers.sql")),
    ("overdue", include_str!("sql/overview/overdue.sql")),
    ("letters", include_str!("sql/overview/letters.sql")),
];

/// The statement of this name.
fn statement(name: &str) -> &'static str {
    STATEMENTS.iter().find(|(known, _)| *known == name).map_or("", |(_, sql)| sql)
}

impl<R> Session<R> {
    pub async fn overview(&self, worker: &str, slot: &str, audit_every: Duration) -> Result<Overview> {
        let (status, lanes, executors) = self.status_and_jobs(worker, slot, audit_every).await?;
        let here = self.one(statement("here"), &[]).await?;
        let feed = self.optional(statement("feed"), &[]).await?;
        Ok(Overview {
            taken_at: here.try_get("taken_at")?,
            database: here.try_get("database")?,
            server: here.try_get("server")?,
            mode_history: each(&self.rows(statement("modes"), &[&worker]).await?, mode_change)?,
            coverage: self.listed("verdicts", coverage).await?,
            dirty: self.listed("dirty", dirty_group).await?,
            feed: feed.as_ref().map(feed_state).transpose()?,
            readers: self.listed("readers", reading).await?,
            lanes,
            executors,
            overdue: self.listed("overdue", overdue_job).await?,
            letters: self.listed("letters", letter).await?,
            certificates: self.certificates(worker).await?,
            status,
        })
    }

    async fn listed<T>(&self, name: &str, read: fn(&Row) -> Result<T>) -> Result<Vec<T>> {
        each(&self.rows(statement(name), &[]).await?, read)
    }
}

fn each<T>(rows: &[Row], read: fn(&Row) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(read).collect()
}

fn mode_change(row: &Row) -> Result<ModeChange> {
    Ok(ModeChange { at: row.try_get("at")?, mode: row.try_get("mode")?, reason: row.try_get("reason")? })
}

fn coverage(row: &Row) -> Result<Coverage> {
    Ok(Coverage {
        measure: row.try_get("measure")?,
        class: row.try_get("class")?,
        count: row.try_get("n")?,
        exact: row.try_get("exact")?,
    })
}

fn dirty_group(row: &Row) -> Result<DirtyGroup> {
    Ok(DirtyGroup {
        group: row.try_get("group_key")?,
        reason: row.try_get("dirty_reason")?,
        since: row.try_get("since")?,
        changes: row.try_get("changes")?,
        members: row.try_get("members")?,
        verdict: row.try_get("verdict")?,
    })
}

fn feed_state(row: &Row) -> Result<Feed> {
    Ok(Feed {
        removed_through: row.try_get("low")?,
        last: row.try_get("last")?,
        waiting: row.try_get("waiting")?,
    })
}

fn reading(row: &Row) -> Result<ReaderMark> {
    Ok(ReaderMark {
        actor: row.try_get("actor_ref")?,
        domain: row.try_get("event_domain")?,
        stream: row.try_get("event_stream")?,
        through: row.try_get("through")?,
        above: row.try_get("above")?,
        at_least: row.try_get("above_is_more")?,
        updated_at: row.try_get("updated_at")?,
    })
}

fn overdue_job(row: &Row) -> Result<OverdueJob> {
    Ok(OverdueJob {
        job: row.try_get("job")?,
        kind: row.try_get("job_kind")?,
        domain: row.try_get("event_domain")?,
        executor: row.try_get("executor")?,
        state: row.try_get("status")?,
        deadline: row.try_get("deadline")?,
    })
}

fn letter(row: &Row) -> Result<OpenLetter> {
    Ok(OpenLetter {
        id: row.try_get("id")?,
        worker: row.try_get("worker_name")?,
        source: row.try_get("source_name")?,
        key: row.try_get("idempotency_key")?,
        code: row.try_get("failure_code")?,
        attempts: row.try_get("attempts")?,
        since: row.try_get("since")?,
    })
}
