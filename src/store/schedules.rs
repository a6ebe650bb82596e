//! Schedules: listing them, making them as a file has them, and pausing them.

use crate::core::schedule::ScheduleFile;
use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::job_queue::reading;
use crate::store::role::Writes;
use crate::store::session::answered;
use serde::Serialize;
use tokio_postgres::Row;

#[derive(Debug, Clone, Serialize)]
pub struct ListedSchedule {
    pub name: String,
    pub cron: Option<String>,
    pub every: Option<String>,
    pub zone: String,
    /// What becomes of runs that were missed.
    pub missed: String,
    pub executor: String,
    pub kind: String,
    pub domain: Option<String>,
    pub paused: bool,
    pub next_run_at: Option<String>,
    pub last_run_at: Option<String>,
    pub last_error: Option<String>,
}

/// What a file changes about one schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ScheduleChange {
    #[serde(rename = "created")]
    Created,
    #[serde(rename = "changed")]
    Changed,
    #[serde(rename = "unchanged")]
    Unchanged,
    #[serde(rename = "refused")]
    Refused,
    /// The database has it and the file has not. It stays.
    #[serde(rename = "not in the file")]
    NotInTheFile,
}

impl ScheduleChange {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::NotInTheFile => "not in the file",
        }
    }

    /// What the gate answers: `refused`, or `done` and which change it was.
    fn read(outcome: &str, reason: Option<&str>) -> Result<Self> {
        match (outcome, reason) {
            ("refused", _) => Ok(Self::Refused),
            ("done", Some("created")) => Ok(Self::Created),
            ("done", Some("changed")) => Ok(Self::Changed),
            ("done", Some("unchanged")) => Ok(Self::Unchanged),
            _ => {
                Err(Error::new(Kind::Internal, format!("unknown change of a schedule: {outcome} {reason:?}")))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScheduleAnswer {
    pub name: String,
    pub change: ScheduleChange,
    /// Why it was refused.
    pub reason: Option<String>,
}

impl<R> Session<R> {
    pub async fn schedules(&self) -> Result<Vec<ListedSchedule>> {
        let rows = self.rows(include_str!("sql/schedules/list.sql"), &[]).await;
        rows.map_err(reading("the schedules"))?.iter().map(listed).collect()
    }
}

impl<R: Writes> Session<R> {
    /// Makes schedules as the file has them, with one answer for each, and one for each that the file does not name. Without
    /// `keep`, all of it is rolled back: the answers say what would be.
    pub async fn apply_schedules(
        &mut self,
        file: &ScheduleFile,
        keep: bool,
        actor: Option<&str>,
    ) -> Result<Vec<ScheduleAnswer>> {
        let others = self.schedules().await?.into_iter().filter(|s| !file.names(&s.name));
        let others: Vec<_> = others
            .map(|s| ScheduleAnswer { name: s.name, change: ScheduleChange::NotInTheFile, reason: None })
            .collect();
        let patience = self.patience;
        let items = file.items(actor);
        let transaction = answered(patience, self.client.transaction()).await?;
        let rows =
            answered(patience, transaction.query(include_str!("sql/schedules/apply.sql"), &[&items])).await;
        let answers: Result<Vec<_>> = rows.context("applying schedules")?.iter().map(answer).collect();
        let answers = answers?;
        let end = if keep {
            answered(patience, transaction.commit()).await
        } else {
            answered(patience, transaction.rollback()).await
        };
        end?;
        Ok(answers.into_iter().chain(others).collect())
    }

    /// False if there is no such schedule, or it was so already.
    pub async fn pause_schedule(&self, name: &str, paused: bool, actor: Option<&str>) -> Result<bool> {
        let row = self.one(include_str!("sql/schedules/pause.sql"), &[&name, &paused, &actor]).await;
        Ok(row.context("pausing a schedule, or ending its pause")?.try_get(0)?)
    }
}

fn listed(row: &Row) -> Result<ListedSchedule> {
    Ok(ListedSchedule {
        name: row.try_get("name")?,
        cron: row.try_get("cron")?,
        every: row.try_get("every")?,
        zone: row.try_get("zone")?,
        missed: row.try_get("missed")?,
        executor: row.try_get("executor")?,
        kind: row.try_get("job_kind")?,
        domain: row.try_get("domain")?,
        paused: row.try_get("paused")?,
        next_run_at: row.try_get("next_run_at")?,
        last_run_at: row.try_get("last_run_at")?,
        last_error: row.try_get("last_error")?,
    })
}

fn answer(row: &Row) -> Result<ScheduleAnswer> {
    let reason: Option<String> = row.try_get("reason")?;
    let change = ScheduleChange::read(row.try_get("outcome")?, reason.as_deref())?;
    let reason = reason.filter(|_| change == ScheduleChange::Refused);
    Ok(ScheduleAnswer { name: row.try_get("name")?, change, reason })
}
