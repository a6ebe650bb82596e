//! The output of `status`. It is read from views and never from a source table.

use crate::core::doctor::seconds_left;
use crate::core::finding::Severity;
use crate::core::standing::{Facts, Open, Proven, Verdict, judge};
use crate::core::worker_state::WorkerState;
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::full_audit::AuditStatus;
use crate::store::job_lanes::{ExecutorHealth, JobLane};
use crate::store::replication::UnusedSlot;
use crate::store::value::{Instant, from_pg};
use crate::store::worker::FamilyMember;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_postgres::error::SqlState;

#[derive(Debug, Serialize)]
pub struct Status {
    pub worker: Option<WorkerStatus>,
    /// Every worker of the family that has ever run.
    pub workers: Vec<FamilyMember>,
    pub sources: Vec<SourceStatus>,
    /// When each source was last audited in full, and when the next audit is due.
    pub audits: Vec<AuditStatus>,
    pub stream: Option<StreamStatus>,
    /// Slots of ours that the configuration does not name and no session reads.
    pub unused_slots: Vec<UnusedSlot>,
    /// The open transaction that holds the frontier back, and so the certificates.
    pub frontier_held_back_by: Option<String>,
    pub captured_waiting: i64,
    /// The counts stopped at a limit; there may be more.
    pub at_least: bool,
    /// Staged rows.
    pub retrying: i64,
    pub dead_letters: i64,
    /// Since when the oldest of them is one.
    pub oldest_dead_letter_at: Option<String>,
    pub dirty_groups: i64,
    pub open_findings: i64,
    pub findings: Vec<FindingStatus>,
    pub jobs: JobsStatus,
}

/// The job queue as a whole; counts stop at 10,000, for each lane where there are lanes.
#[derive(Debug, Serialize)]
pub struct JobsStatus {
    /// Jobs that may be claimed now.
    pub ready: i64,
    /// One of the counts stopped at its limit.
    pub at_least: bool,
    pub oldest_ready_seconds: Option<f64>,
    pub running: i64,
    /// Jobs that wait for a time.
    pub deferred: i64,
    /// Jobs that wait for another job.
    pub blocked: i64,
    pub overdue: i64,
    pub dead_letters: i64,
    pub executors_alive: i64,
    pub executors_silent: i64,
}

impl JobsStatus {
    fn of(lanes: &[JobLane], executors: &[ExecutorHealth], counts: [i64; 4]) -> Self {
        let in_state = |state: &str| {
            let ids: BTreeSet<_> =
                executors.iter().filter(|e| e.state == state).map(|e| &e.executor).collect();
            i64::try_from(ids.len()).unwrap_or(i64::MAX)
        };
        let [deferred, blocked, overdue, dead_letters] = counts;
        Self {
            ready: lanes.iter().map(|lane| lane.ready).sum(),
            at_least: lanes.iter().any(|lane| lane.at_least) || counts.iter().any(|n| *n >= 10_000),
            oldest_ready_seconds: lanes.iter().filter_map(|lane| lane.oldest_seconds).reduce(f64::max),
            running: executors.iter().map(|executor| executor.running).sum(),
            deferred,
            blocked,
            overdue,
            dead_letters,
            executors_alive: in_state("alive"),
            executors_silent: in_state("silent"),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct WorkerStatus {
    pub owner: Option<String>,
    pub term: Option<i64>,
    pub alive: bool,
    pub mode: Option<String>,
    pub reason: Option<String>,
    pub tick_age_seconds: f64,
    /// In UTC, as every time of the output.
    pub ticked_at: Option<String>,
    /// Time since the last moment up to which everything is known to be handed off; `None` before the daemon has
    /// reported.
    pub lag_seconds: Option<f64>,
    /// Why the lanes pause, or why certifying passes are deferred.
    pub pace: Option<String>,
    #[serde(skip)]
    slot_budget: Option<i64>,
    #[serde(skip)]
    slot_rate: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct SourceStatus {
    pub source: String,
    pub watermark_at: Option<String>,
    pub watermark_id: Option<String>,
    pub rows_seen: i64,
    pub signals: i64,
    pub dead_lettered: i64,
    pub open_ranges: i64,
    pub hot_ranges: i64,
    /// What became of the rows that it had when it was registered: `seed`, `skip` or `hand_off`.
    pub backlog: Option<String>,
    pub backlog_rows: Option<i64>,
    pub idle_seconds: Option<f64>,
    /// Everything that was committed before this time is handed off; `None` before the first certificate.
    pub complete_through: Option<String>,
    pub proven_seconds_ago: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct StreamStatus {
    pub slot: String,
    pub durable_lsn: Option<String>,
    pub confirmed_lsn: Option<String>,
    pub active: bool,
    pub retained_bytes: Option<i64>,
    /// The amount of retained log at which the daemon drops the slot.
    pub budget_bytes: Option<i64>,
    /// Computed from the rate that the daemon last measured; `None` when the retained log does not grow.
    pub seconds_to_budget: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct FindingStatus {
    pub kind: String,
    pub severity: String,
    pub key: String,
    pub occurrences: i64,
    pub since: Option<String>,
}

impl Status {
    /// How things stand, in one sentence; `worker` is the intake.
    #[must_use]
    pub fn verdict(&self, worker: &str) -> Verdict {
        let open = |finding: &FindingStatus| Open {
            kind: finding.kind.clone(),
            severity: finding.severity.clone(),
            since: finding.since.clone().unwrap_or_default(),
        };
        let proven = |source: &SourceStatus| Proven {
            source: source.source.clone(),
            through: source.complete_through.clone(),
            seconds_ago: source.proven_seconds_ago,
        };
        let member =
            self.workers.iter().find(|member| member.worker == worker && member.state == WorkerState::Paused);
        judge(&Facts {
            worker: worker.to_owned(),
            alive: self.worker.as_ref().map(|worker| worker.alive),
            last_tick: self.worker.as_ref().and_then(|worker| worker.ticked_at.clone()),
            paused: member.map(|m| m.paused_because.clone().unwrap_or_else(|| "no reason given".to_owned())),
            paused_at: member.and_then(|m| m.paused_at.clone()),
            sources: self.sources.iter().map(proven).collect(),
            dead_letters: self.dead_letters,
            oldest_dead_letter: self.oldest_dead_letter_at.clone(),
            findings: self
                .findings
                .iter()
                .filter(|finding| Severity::of(&finding.severity) > Severity::Info)
                .map(open)
                .collect(),
        })
    }
}

impl<R> Session<R> {
    pub async fn status(&self, worker: &str, slot: &str, audit_every: Duration) -> Result<Status> {
        Ok(self.status_and_jobs(worker, slot, audit_every).await?.0)
    }

    /// The status, and the lanes and executors that it sums up.
    pub async fn status_and_jobs(
        &self,
        worker: &str,
        slot: &str,
        audit_every: Duration,
    ) -> Result<(Status, Vec<JobLane>, Vec<ExecutorHealth>)> {
        let counts =
            self.one(include_str!("sql/status/counts.sql"), &[]).await.map_err(|e| match e.state() {
                Some(SqlState::UNDEFINED_TABLE) => crate::error::Error::of(
                    &crate::error::codes::NOT_MIGRATED,
                    "the governance tables are not here; run `gov-handoff migrate` first",
                ),
                _ => e,
            })?;
        let row = self.optional(include_str!("sql/status/worker.sql"), &[&worker]).await?;
        let worker_status = row
            .map(|row| {
                Ok::<_, crate::error::Error>(WorkerStatus {
                    owner: row.try_get("lease_owner")?,
                    term: row.try_get("term")?,
                    alive: row.try_get::<_, Option<bool>>("alive")?.unwrap_or(false),
                    mode: row.try_get("mode")?,
                    reason: row.try_get("mode_reason")?,
                    tick_age_seconds: row.try_get("tick_age")?,
                    ticked_at: row.try_get("ticked_at")?,
                    #[allow(clippy::cast_precision_loss)] // For people to read.
                    lag_seconds: row.try_get::<_, Option<i64>>("lag_ms")?.map(|ms| ms as f64 / 1_000.0),
                    pace: row.try_get("pace_reason")?,
                    slot_budget: row.try_get("slot_budget")?,
                    slot_rate: row.try_get("slot_rate")?,
                })
            })
            .transpose()?;
        let (lanes, executors) = (self.job_lanes().await?, self.executor_health().await?);
        let dirty_groups: i64 = counts.try_get("dirty_groups")?;
        let status = Status {
            stream: self.stream_status(worker_status.as_ref(), slot).await?,
            unused_slots: self.unused_slots(slot).await?,
            worker: worker_status,
            workers: self.family().await?,
            sources: self.source_status(worker).await?,
            audits: self.audit_status(worker, audit_every).await?,
            frontier_held_back_by: self.frontier_holder().await?,
            captured_waiting: counts.try_get("waiting")?,
            at_least: counts.try_get::<_, bool>("more")? || dirty_groups >= 10_000,
            retrying: counts.try_get("retrying")?,
            dead_letters: counts.try_get("dead_letters")?,
            oldest_dead_letter_at: counts.try_get("oldest_dead_letter_at")?,
            dirty_groups,
            open_findings: counts.try_get("open_findings")?,
            findings: self.open_findings().await?,
            jobs: JobsStatus::of(&lanes, &executors, self.queue_counts().await?),
        };
        Ok((status, lanes, executors))
    }

    pub async fn source_status(&self, worker: &str) -> Result<Vec<SourceStatus>> {
        let rows = self
            .rows(include_str!("sql/status/sources.sql"), &[&worker])
            .await
            .context("reading the sources")?;
        rows.iter()
            .map(|row| {
                Ok(SourceStatus {
                    source: row.try_get("source_name")?,
                    watermark_at: row
                        .try_get::<_, Option<Instant>>("last_watermark_ts")?
                        .map(|t| t.0.to_string()),
                    watermark_id: row.try_get("last_watermark_id")?,
                    rows_seen: row.try_get("events_seen")?,
                    signals: row.try_get("attempts_written")?,
                    dead_lettered: row.try_get("dead_lettered")?,
                    open_ranges: row.try_get::<_, i64>("open_ranges")?.max(0),
                    hot_ranges: row.try_get::<_, i64>("hot_ranges")?.max(0),
                    backlog: row.try_get("policy")?,
                    backlog_rows: row.try_get("row_count")?,
                    idle_seconds: row.try_get("idle_seconds")?,
                    complete_through: row.try_get("complete_through")?,
                    proven_seconds_ago: row.try_get("proven_ago")?,
                })
            })
            .collect()
    }

    async fn stream_status(&self, worker: Option<&WorkerStatus>, slot: &str) -> Result<Option<StreamStatus>> {
        let durable = self.stream_position(slot).await?.map(|p| p.durable.to_string());
        let row = self.optional(include_str!("sql/replication/slot.sql"), &[&slot]).await?;
        if durable.is_none() && row.is_none() {
            return Ok(None);
        }
        let mut status = StreamStatus {
            slot: slot.to_owned(),
            durable_lsn: durable,
            confirmed_lsn: None,
            active: false,
            retained_bytes: None,
            budget_bytes: None,
            seconds_to_budget: None,
        };
        if let Some(row) = row {
            status.confirmed_lsn =
                row.try_get::<_, Option<_>>("confirmed_flush_lsn")?.map(|l| from_pg(l).to_string());
            status.active = row.try_get("active")?;
            status.retained_bytes = row.try_get("retained")?;
        }
        if let Some(worker) = worker {
            status.budget_bytes = worker.slot_budget;
            if let (Some(budget), Some(retained)) = (status.budget_bytes, status.retained_bytes) {
                status.seconds_to_budget = seconds_left(retained, budget, worker.slot_rate);
            }
        }
        Ok(Some(status))
    }

    pub async fn open_findings(&self) -> Result<Vec<FindingStatus>> {
        let rows = self.rows(include_str!("sql/findings/open.sql"), &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(FindingStatus {
                    kind: row.try_get(0)?,
                    severity: row.try_get(1)?,
                    key: row.try_get(2)?,
                    occurrences: row.try_get(3)?,
                    since: row.try_get(4)?,
                })
            })
            .collect()
    }
}
