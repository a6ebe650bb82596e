//! The workers of the family: which there are, pausing one, and the intake's checkpoint.

use crate::core::worker_state::WorkerState;
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::ToSql;

/// A worker as people see it.
#[derive(Debug, Clone, Serialize)]
pub struct FamilyMember {
    pub worker: String,
    pub state: WorkerState,
    pub owner: Option<String>,
    pub term: Option<i64>,
    pub tick_age_seconds: Option<f64>,
    pub paused_because: Option<String>,
    pub paused_by: Option<String>,
    pub paused_at: Option<String>,
    pub rows_seen: Option<i64>,
    pub effects: Option<i64>,
    pub dead_lettered: Option<i64>,
    pub idle_seconds: Option<f64>,
    pub phase: Option<String>,
    pub progress: Option<Value>,
}

impl FamilyMember {
    /// A worker that has not ticked in this database yet.
    #[must_use]
    pub fn that_never_ran(worker: &str) -> Self {
        Self {
            worker: worker.to_owned(),
            state: WorkerState::NeverRan,
            owner: None,
            term: None,
            tick_age_seconds: None,
            paused_because: None,
            paused_by: None,
            paused_at: None,
            rows_seen: None,
            effects: None,
            dead_lettered: None,
            idle_seconds: None,
            phase: None,
            progress: None,
        }
    }
}

impl<R> Session<R> {
    pub async fn is_paused(&self, worker: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/worker/paused.sql"), &[&worker]).await?.try_get(0)?)
    }

    /// Whether a session of this owner of a lease is connected. A process that was killed has none, although its last tick is
    /// recent.
    pub async fn is_connected(&self, owner: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/worker/connected.sql"), &[&owner]).await?.try_get(0)?)
    }

    /// Every worker that has ever ticked in this database.
    pub async fn family(&self) -> Result<Vec<FamilyMember>> {
        let rows =
            self.rows(include_str!("sql/worker/list.sql"), &[]).await.context("reading the workers")?;
        rows.iter()
            .map(|row| {
                Ok(FamilyMember {
                    worker: row.try_get("worker_name")?,
                    state: WorkerState::of(row.try_get("state")?),
                    owner: row.try_get("lease_owner")?,
                    term: row.try_get("term")?,
                    tick_age_seconds: row.try_get("tick_age")?,
                    paused_because: row.try_get("paused_because")?,
                    paused_by: row.try_get("paused_by")?,
                    paused_at: row.try_get("paused_at")?,
                    rows_seen: row.try_get("rows_seen")?,
                    effects: row.try_get("effects")?,
                    dead_lettered: row.try_get("dead_lettered")?,
                    idle_seconds: row.try_get("idle_seconds")?,
                    phase: row.try_get("phase")?,
                    progress: row.try_get::<_, Option<Value>>("progress")?.filter(|p| !p.is_null()),
                })
            })
            .collect()
    }
}

impl<R: Writes> Session<R> {
    /// Pauses or resumes a worker. Returns whether this changed anything.
    pub async fn pause_worker(
        &self,
        worker: &str,
        paused: bool,
        actor: Option<&str>,
        reason: Option<&str>,
    ) -> Result<bool> {
        let params: [&(dyn ToSql + Sync); 4] = [&worker, &paused, &actor, &reason];
        let row = self.one(include_str!("sql/worker/pause.sql"), &params).await;
        Ok(row.context("pausing a worker")?.try_get(0)?)
    }

    /// Writes the intake's checkpoint: the summary of its run under this lease.
    pub async fn checkpoint(&self, lease: &Lease) -> Result<()> {
        let params: [&(dyn ToSql + Sync); 3] = [&lease.worker, &lease.owner, &lease.term];
        self.one(include_str!("sql/worker/checkpoint.sql"), &params)
            .await
            .context("writing the checkpoint")?;
        Ok(())
    }
}
