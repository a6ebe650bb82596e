//! The values of the metrics of the job queue, read from views that an observer may read.

use crate::error::Result;
use crate::store::Session;

/// The job queue at one moment.
#[derive(Debug, Clone, Default)]
pub struct JobReading {
    pub lanes: Vec<LaneReading>,
    pub subscriptions: Vec<SubscriptionReading>,
    pub deferred: i64,
    pub overdue: i64,
    pub dead_letters: i64,
}

/// One lane: executor kind, kind of job, domain and priority, as labels.
#[derive(Debug, Clone)]
pub struct LaneReading {
    pub labels: [String; 4],
    pub ready: i64,
    pub oldest: Option<f64>,
}

/// One subscription: executor, kind of job and domain, as labels; totals since the beginning.
#[derive(Debug, Clone)]
pub struct SubscriptionReading {
    pub labels: [String; 3],
    pub alive: bool,
    pub running: i64,
    pub claimed: i64,
    pub finished: i64,
    pub rescued: i64,
}

impl<R> Session<R> {
    pub async fn job_metrics(&self) -> Result<JobReading> {
        let row = self.one(include_str!("sql/metrics/jobs.sql"), &[]).await?;
        let mut reading = JobReading {
            deferred: row.try_get("deferred")?,
            overdue: row.try_get("overdue")?,
            dead_letters: row.try_get("dead_letters_open")?,
            ..JobReading::default()
        };
        for row in self.rows(include_str!("sql/metrics/job_lanes.sql"), &[]).await? {
            reading.lanes.push(LaneReading {
                labels: [word(&row, 0)?, word(&row, 1)?, word(&row, 2)?, word(&row, 3)?],
                ready: row.try_get("ready")?,
                oldest: row.try_get("oldest")?,
            });
        }
        for row in self.rows(include_str!("sql/metrics/job_subscriptions.sql"), &[]).await? {
            reading.subscriptions.push(SubscriptionReading {
                labels: [word(&row, 0)?, word(&row, 1)?, word(&row, 2)?],
                alive: row.try_get("alive")?,
                running: row.try_get("running")?,
                claimed: row.try_get("claimed")?,
                finished: row.try_get("finished")?,
                rescued: row.try_get("rescued")?,
            });
        }
        Ok(reading)
    }
}

/// A label; a missing value is an empty one.
fn word(row: &tokio_postgres::Row, column: usize) -> Result<String> {
    Ok(row.try_get::<_, Option<String>>(column)?.unwrap_or_default())
}
