//! Migrations and their revert. `migrate` creates substrate objects only where they are absent and never alters an
//! existing one. It records what it created, so that a revert drops exactly that.

mod revert;
mod steps;

pub use revert::Loss;
pub use steps::compare;

use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::role::Administers;
use serde::Serialize;
use steps::{STEPS, Step, checksum, objects};
use tokio_postgres::Transaction;

/// How a step stands after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    Applied,
    /// It is missing. A dry run would apply it.
    Pending,
    Reverted,
    /// It was applied before.
    Current,
}

impl StepState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Pending => "pending",
            Self::Reverted => "reverted",
            Self::Current => "current",
        }
    }
}

/// What one step did or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepReport {
    pub version: i32,
    pub name: String,
    pub state: StepState,
    pub created: Vec<String>,
    pub adopted: Vec<String>,
}

impl<R> Session<R> {
    /// Which steps are applied.
    pub async fn migration_status(&self) -> Result<Vec<StepReport>> {
        let there = self.one(include_str!("../sql/migrate/exists.sql"), &[&"gov_schema_version"]).await?;
        let mut applied = Vec::new();
        if there.try_get(0)? {
            let rows = self.rows(include_str!("../sql/migrate/status.sql"), &[]).await?;
            for row in rows {
                applied.push((row.try_get::<_, i32>(0)?, row.try_get::<_, Vec<String>>(1)?));
            }
        }
        let state = |step: &Step| match applied.iter().find(|(v, _)| *v == step.version) {
            Some((_, created)) => step.report(StepState::Current, created.clone(), vec![]),
            None => step.report(StepState::Pending, vec![], vec![]),
        };
        Ok(STEPS.iter().map(state).collect())
    }

    /// Describes each difference between the live tables and what the gates need.
    pub async fn shape_differences(&self) -> Result<Vec<ShapeDifference>> {
        self.rows(include_str!("../sql/migrate/shape.sql"), &[]).await?.iter().map(shape_difference).collect()
    }
}

impl<R: Administers> Session<R> {
    /// Applies the missing steps in one transaction.
    pub async fn migrate(&mut self, dry_run: bool) -> Result<Vec<StepReport>> {
        let transaction = self.client.transaction().await?;
        transaction
            .batch_execute(include_str!("../sql/migrate/begin.sql"))
            .await
            .context("preparing to migrate")?;
        transaction
            .batch_execute(include_str!("../sql/migrate/lend.sql"))
            .await
            .context("becoming able to give functions to gov_handoff_owner")?;
        let mut reports = Vec::new();
        for step in STEPS {
            reports.push(if is_applied(&transaction, step).await? {
                step.report(StepState::Current, vec![], vec![])
            } else {
                let (created, adopted) = apply(&transaction, step).await?;
                step.report(if dry_run { StepState::Pending } else { StepState::Applied }, created, adopted)
            });
        }
        transaction.batch_execute(include_str!("../sql/migrate/return.sql")).await?;
        if dry_run {
            transaction.rollback().await?
        } else {
            transaction.commit().await?
        }
        Ok(reports)
    }
}

/// Whether a step is applied. An error if another build applied it.
async fn is_applied(transaction: &Transaction<'_>, step: &Step) -> Result<bool> {
    let done = transaction.query_opt(include_str!("../sql/migrate/step.sql"), &[&step.version]).await?;
    let Some(row) = done else { return Ok(false) };
    if row.try_get::<_, String>(0)? == checksum(step.up) {
        return Ok(true);
    }
    let problem = format!(
        "migration {} ({}) was applied by another build; revert with that build, then migrate with this one",
        step.version, step.name
    );
    Err(Error::new(Kind::Catalogue, problem))
}

/// Applies a step and records it. Returns the objects that it created and those that existed before.
async fn apply(transaction: &Transaction<'_>, step: &Step) -> Result<(Vec<String>, Vec<String>)> {
    let (mut created, mut adopted) = (Vec::new(), Vec::new());
    for (object, sql) in objects(step.up) {
        if let Some(object) = object {
            let there = transaction.query_one(include_str!("../sql/migrate/exists.sql"), &[&object]).await?;
            if there.try_get(0)? {
                adopted.push(object.to_owned());
                continue;
            }
            created.push(object.to_owned());
        }
        let doing = || format!("migration {} ({})", step.version, step.name);
        transaction.batch_execute(sql).await.context(doing())?;
    }
    // The first step is the substrate. Some of its tables may have existed before, in a shape that the gates cannot
    // use.
    if step.version == 1 {
        let missing = transaction.query(include_str!("../sql/migrate/shape.sql"), &[]).await?;
        if !missing.is_empty() {
            return Err(shape_error(&missing)?);
        }
    }
    let record = include_str!("../sql/migrate/record.sql");
    transaction.execute(record, &[&step.version, &step.name, &checksum(step.up), &created]).await?;
    Ok((created, adopted))
}

/// Something that the gates need of a live table, and what is there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeDifference {
    pub table: String,
    pub column: String,
    pub wanted: String,
    pub found: Option<String>,
}

impl std::fmt::Display for ShapeDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, column, wanted, found } = self;
        match found {
            Some(found) => write!(f, "{table}.{column} is {found}, expected {wanted}"),
            None => write!(f, "{table} has no column {column} ({wanted})"),
        }
    }
}

fn shape_difference(row: &tokio_postgres::Row) -> Result<ShapeDifference> {
    Ok(ShapeDifference {
        table: row.try_get(0)?,
        column: row.try_get(1)?,
        wanted: row.try_get(2)?,
        found: row.try_get(3)?,
    })
}

fn shape_error(missing: &[tokio_postgres::Row]) -> Result<Error> {
    let parts =
        missing.iter().map(|row| Ok(shape_difference(row)?.to_string())).collect::<Result<Vec<_>>>()?;
    Ok(Error::new(
        Kind::Catalogue,
        format!(
            "the live substrate differs from what the gates need, and migrate never alters it: {}; nothing was changed",
            parts.join("; ")
        ),
    ))
}
