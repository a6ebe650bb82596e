//! Lanes, executors and counts of the job queue, as onlookers see them.

use crate::error::Result;
use crate::store::Session;
use serde::Serialize;
use tokio_postgres::Row;

#[derive(Debug, Serialize)]
pub struct JobLane {
    pub executor: Option<String>,
    pub kind: Option<String>,
    pub domain: Option<String>,
    pub priority: Option<String>,
    pub ready: i64,
    pub at_least: bool,
    pub oldest_seconds: Option<f64>,
}

/// An executor and one of its subscriptions.
#[derive(Debug, Serialize)]
pub struct ExecutorHealth {
    pub executor: String,
    pub executor_kind: Option<String>,
    pub kind: Option<String>,
    pub domain: Option<String>,
    /// `alive`, `silent`, `never_seen` or `disabled`.
    pub state: String,
    pub running: i64,
    pub most: Option<i32>,
    pub claimed: i64,
    pub finished: i64,
    pub rescued: i64,
    pub tick_age_seconds: Option<f64>,
}

impl<R> Session<R> {
    pub(super) async fn job_lanes(&self) -> Result<Vec<JobLane>> {
        self.rows(include_str!("sql/job_lanes/lanes.sql"), &[]).await?.iter().map(lane).collect()
    }

    pub(super) async fn executor_health(&self) -> Result<Vec<ExecutorHealth>> {
        self.rows(include_str!("sql/job_lanes/executors.sql"), &[]).await?.iter().map(executor).collect()
    }

    /// Jobs that wait for a time, that wait for another job, that are overdue, and that are dead letters.
    pub(super) async fn queue_counts(&self) -> Result<[i64; 4]> {
        let row = self.one(include_str!("sql/job_lanes/queue.sql"), &[]).await?;
        Ok([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?])
    }
}

fn lane(row: &Row) -> Result<JobLane> {
    Ok(JobLane {
        executor: row.try_get("executor")?,
        kind: row.try_get("job_kind")?,
        domain: row.try_get("event_domain")?,
        priority: row.try_get("priority")?,
        ready: row.try_get("ready")?,
        at_least: row.try_get("ready_is_more")?,
        oldest_seconds: row.try_get("oldest")?,
    })
}

fn executor(row: &Row) -> Result<ExecutorHealth> {
    Ok(ExecutorHealth {
        executor: row.try_get("executor_id")?,
        executor_kind: row.try_get("executor_kind")?,
        kind: row.try_get("job_kind")?,
        domain: row.try_get("event_domain")?,
        state: row.try_get("state")?,
        running: row.try_get("running")?,
        most: row.try_get("max_parallel")?,
        claimed: row.try_get("claimed")?,
        finished: row.try_get("finished")?,
        rescued: row.try_get("rescued")?,
        tick_age_seconds: row.try_get("tick_age")?,
    })
}
