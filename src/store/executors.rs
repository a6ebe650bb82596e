//! Executors: listing, registering, subscribing and disabling them.

use crate::core::job::ExecutorKind;
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::job_queue::reading;
use crate::store::role::Writes;
use serde::Serialize;
use tokio_postgres::types::ToSql;

/// An executor with one of its subscriptions; without one, the fields of the subscription are `None`.
#[derive(Debug, Clone, Serialize)]
pub struct ListedExecutor {
    pub executor: String,
    pub kind: String,
    /// The role that may act for it; `None` until its first heartbeat.
    pub role: Option<String>,
    /// `alive`, `silent`, `never_seen` or `disabled`.
    pub state: String,
    pub last_heartbeat_at: Option<String>,
    pub job_kind: Option<String>,
    pub domain: Option<String>,
    pub priority_floor: Option<i16>,
    /// `None` if the executor is subscribed to nothing.
    pub max_parallel: Option<i32>,
    pub subscription_enabled: Option<bool>,
    pub running: i64,
    pub claimed: i64,
    pub finished: i64,
    pub rescued: i64,
}

/// Which jobs an executor may claim.
#[derive(Debug, Clone, Copy)]
pub struct NewSubscription<'a> {
    pub job_kind: Option<&'a str>,
    pub domain: Option<&'a str>,
    pub priority_floor: i32,
    pub max_parallel: i32,
}

impl<R> Session<R> {
    pub async fn executors(&self) -> Result<Vec<ListedExecutor>> {
        let rows = self.rows(include_str!("sql/executors/list.sql"), &[]).await;
        let listed = |row: &tokio_postgres::Row| {
            Ok(ListedExecutor {
                executor: row.try_get("executor_id")?,
                kind: row.try_get("executor_kind")?,
                role: row.try_get("role_name")?,
                state: row.try_get("state")?,
                last_heartbeat_at: row.try_get("last_tick_at")?,
                job_kind: row.try_get("job_kind")?,
                domain: row.try_get("event_domain")?,
                priority_floor: row.try_get("priority_floor")?,
                max_parallel: row.try_get("max_parallel")?,
                subscription_enabled: row.try_get("enabled")?,
                running: row.try_get("running")?,
                claimed: row.try_get("claimed")?,
                finished: row.try_get("finished")?,
                rescued: row.try_get("rescued")?,
            })
        };
        rows.map_err(reading("the executors"))?.iter().map(listed).collect()
    }
}

impl<R: Writes> Session<R> {
    pub async fn register_executor(
        &self,
        executor: &str,
        kind: ExecutorKind,
        role: Option<&str>,
        actor: Option<&str>,
    ) -> Result<()> {
        let params: [&(dyn ToSql + Sync); 4] = [&executor, &kind.name(), &actor, &role];
        self.one(include_str!("sql/executors/register.sql"), &params)
            .await
            .context("registering an executor")?;
        Ok(())
    }

    pub async fn subscribe_executor(
        &self,
        executor: &str,
        to: NewSubscription<'_>,
        actor: Option<&str>,
    ) -> Result<()> {
        let NewSubscription { job_kind, domain, priority_floor, max_parallel } = to;
        let params: [&(dyn ToSql + Sync); 7] =
            [&executor, &job_kind, &domain, &priority_floor, &max_parallel, &true, &actor];
        self.one(include_str!("sql/executors/subscribe.sql"), &params)
            .await
            .context("subscribing an executor")?;
        Ok(())
    }

    /// False if it was disabled already, or is not registered.
    pub async fn disable_executor(&self, executor: &str, actor: Option<&str>) -> Result<bool> {
        let row = self.one(include_str!("sql/executors/disable.sql"), &[&executor, &actor]).await;
        Ok(row.context("disabling an executor")?.try_get(0)?)
    }
}
