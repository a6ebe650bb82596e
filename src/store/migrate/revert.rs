//! Reverting the migrations, and what a revert would discard.

use super::steps::{STEPS, Step};
use super::{StepReport, StepState};
use crate::error::{Context, Error, Kind, Result};
use crate::store::role::Administers;
use crate::store::{Session, quote};
use serde::Serialize;
use tokio_postgres::Transaction;

/// What a revert would discard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    pub signals: i64,
    pub captured: i64,
    pub dead_letters: i64,
    pub source_rows: i64,
    /// Retired integer keys and signals. If the database forgets them, they are handed off again.
    pub retired: i64,
}

impl Loss {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn forgotten(&self) -> String {
        match self.retired {
            0 => String::new(),
            n => format!(" and forget that {n} were retired, which would be emitted again"),
        }
    }
}

impl<R: Administers> Session<R> {
    /// Reverts every step, the newest first. Refuses if that would discard recorded handoffs, unless `discard` is set.
    pub async fn revert(&mut self, discard: bool) -> Result<Vec<StepReport>> {
        let applied = self.migration_status().await?;
        let created = applied.iter().find(|s| s.version == 1).map(|s| s.created.clone()).unwrap_or_default();
        if applied.iter().all(|s| s.state == StepState::Pending) {
            return Ok(vec![]);
        }
        let loss = self.loss(&created).await?;
        if !discard && !loss.is_nothing() {
            return Err(Error::new(
                Kind::Refused,
                format!(
                    "revert would discard {} recorded and {} captured handoffs, {} dead letters and {} source rows{}; pass --discard to do so",
                    loss.signals,
                    loss.captured,
                    loss.dead_letters,
                    loss.source_rows,
                    loss.forgotten()
                ),
            ));
        }
        let transaction = self.client.transaction().await?;
        transaction.batch_execute(include_str!("../sql/migrate/begin.sql")).await?;
        let mut reports = Vec::new();
        let in_force =
            |s: &&Step| applied.iter().any(|a| a.version == s.version && a.state == StepState::Current);
        for step in STEPS.iter().rev().filter(in_force) {
            take_back(&transaction, step, &created).await?;
            // The first step is the one that created them.
            let dropped = if step.version == 1 { created.clone() } else { vec![] };
            reports.push(step.report(StepState::Reverted, dropped, vec![]));
        }
        transaction.batch_execute(include_str!("../sql/migrate/end.sql")).await?;
        transaction.commit().await?;
        Ok(reports)
    }

    /// Counts only in tables that a revert drops: our own, and the substrate tables that `migrate` created.
    async fn loss(&self, created: &[String]) -> Result<Loss> {
        let there = self.one(include_str!("../sql/migrate/exists.sql"), &[&"gov_retired_range"]).await?;
        let retired = if there.try_get(0)? {
            self.one(include_str!("../sql/migrate/loss_retired.sql"), &[]).await?.try_get(0)?
        } else {
            0
        };
        let mut source_rows = 0;
        for (table, filter) in [
            ("birth_registry", "true"),
            ("registry_changelog", "source_system is distinct from 'gov-handoff'"),
            ("pivot_definitions", "true"),
            ("governance_ruleset", "true"),
        ] {
            source_rows += self.count_created(created, table, filter).await?;
        }
        let governance = "event_domain = 'governance'";
        Ok(Loss {
            signals: self
                .count_created(
                    created,
                    "event_outbox",
                    "event_domain = 'governance' and event_subject_ref is not null",
                )
                .await?,
            captured: self
                .count_created(
                    created,
                    "event_pending",
                    "event_domain = 'governance' and entity_ref is not null",
                )
                .await?,
            dead_letters: self.count_created(created, "iu_route_dead_letter", governance).await?,
            source_rows,
            retired,
        })
    }

    async fn count_created(&self, created: &[String], table: &str, filter: &str) -> Result<i64> {
        if !created.iter().any(|c| c == table) {
            return Ok(0);
        }
        let places = [("table", quote::identifier(table)), ("filter", filter.to_owned())];
        let places: Vec<_> = places.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let sql = quote::fill(include_str!("../sql/migrate/loss.sql"), &places);
        Ok(self.client.query_one(&sql, &[]).await?.try_get(0)?)
    }
}

/// Reverts one step. The substrate has no revert script: the tables that `migrate` created are dropped, the latest
/// first.
async fn take_back(transaction: &Transaction<'_>, step: &Step, created: &[String]) -> Result<()> {
    if let Some(down) = step.down {
        return transaction.batch_execute(down).await.context(format!("reverting {}", step.name));
    }
    for object in created.iter().rev() {
        let table = quote::identifier(object);
        let drop = quote::fill(include_str!("../sql/migrate/drop.sql"), &[("table", &table)]);
        transaction.batch_execute(&drop).await.context(format!("dropping {object}"))?;
    }
    Ok(())
}
