//! Migrations and the way back. Substrate objects are created only where absent and never altered; what was created is
//! recorded, so that reverting drops that and nothing else.

use crate::error::{Context, Error, Kind, Result};
use crate::store::{Store, quote};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// One step, up and down. The substrate's way back is computed from what was recorded.
struct Step {
    version: i32,
    name: &'static str,
    up: &'static str,
    down: Option<&'static str>,
}

/// The step that `NNNN_name.sql` and `NNNN_name.down.sql` are.
macro_rules! step {
    ($version:literal, $number:literal, $name:literal) => {
        Step {
            version: $version,
            name: $name,
            up: include_str!(concat!("../../migrations/", $number, "_", $name, ".sql")),
            down: Some(include_str!(concat!("../../migrations/", $number, "_", $name, ".down.sql"))),
        }
    };
}

const STEPS: [Step; 13] = [
    Step {
        version: 1,
        name: "substrate",
        up: include_str!("../../migrations/0001_substrate.sql"),
        down: None,
    },
    step!(2, "0002", "governance"),
    step!(3, "0003", "apply"),
    step!(4, "0004", "lease"),
    step!(5, "0005", "findings"),
    step!(6, "0006", "sources"),
    step!(7, "0007", "roles"),
    step!(8, "0008", "proof"),
    step!(9, "0009", "selftest"),
    step!(10, "0010", "retry"),
    step!(11, "0011", "trust"),
    step!(12, "0012", "watch"),
    step!(13, "0013", "metrics"),
];

/// What was or would be done, for people and scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepReport {
    pub version: i32,
    pub name: String,
    /// `applied`, `pending`, `reverted` or `current`.
    pub state: &'static str,
    pub created: Vec<String>,
    pub adopted: Vec<String>,
}

/// What a revert would throw away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    pub signals: i64,
    pub captured: i64,
    pub dead_letters: i64,
    pub source_rows: i64,
    /// Integer keys and signals that retention took: without the memory of them they would be handed off again.
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

impl Store {
    /// Applies what is missing, in one transaction: all of it or none.
    pub async fn migrate(&mut self, dry_run: bool) -> Result<Vec<StepReport>> {
        let transaction = self.client.transaction().await?;
        transaction
            .batch_execute(include_str!("sql/migrate/begin.sql"))
            .await
            .context("preparing to migrate")?;
        transaction
            .batch_execute(include_str!("sql/migrate/lend.sql"))
            .await
            .context("becoming able to give functions to gov_handoff_owner")?;
        let mut reports = Vec::new();
        for step in &STEPS {
            let done = transaction.query_opt(include_str!("sql/migrate/step.sql"), &[&step.version]).await?;
            if let Some(row) = done {
                let (recorded, actual): (String, String) = (row.try_get(0)?, checksum(step.up));
                if recorded != actual {
                    return Err(Error::new(
                        Kind::Catalogue,
                        format!(
                            "migration {} ({}) was applied by another build; revert with that build, then migrate with this one",
                            step.version, step.name
                        ),
                    ));
                }
                reports.push(step.report("current", vec![], vec![]));
                continue;
            }
            let (mut created, mut adopted) = (Vec::new(), Vec::new());
            for (object, sql) in objects(step.up) {
                if let Some(object) = object {
                    let there =
                        transaction.query_one(include_str!("sql/migrate/exists.sql"), &[&object]).await?;
                    if there.try_get(0)? {
                        adopted.push(object.to_owned());
                        continue;
                    }
                    created.push(object.to_owned());
                }
                transaction
                    .batch_execute(sql)
                    .await
                    .context(format!("migration {} ({})", step.version, step.name))?;
            }
            if step.version == 1 {
                let missing = transaction.query(include_str!("sql/migrate/shape.sql"), &[]).await?;
                if !missing.is_empty() {
                    return Err(shape_error(&missing)?);
                }
            }
            transaction
                .execute(
                    include_str!("sql/migrate/record.sql"),
                    &[&step.version, &step.name, &checksum(step.up), &created],
                )
                .await?;
            reports.push(step.report(if dry_run { "pending" } else { "applied" }, created, adopted));
        }
        transaction.batch_execute(include_str!("sql/migrate/return.sql")).await?;
        if dry_run {
            transaction.rollback().await?
        } else {
            transaction.commit().await?
        }
        Ok(reports)
    }

    /// Which steps are applied.
    pub async fn migration_status(&self) -> Result<Vec<StepReport>> {
        let there = self.one(include_str!("sql/migrate/exists.sql"), &[&"gov_schema_version"]).await?;
        let mut applied = Vec::new();
        if there.try_get(0)? {
            let rows = self.rows(include_str!("sql/migrate/status.sql"), &[]).await?;
            for row in rows {
                applied.push((row.try_get::<_, i32>(0)?, row.try_get::<_, Vec<String>>(1)?));
            }
        }
        let state = |step: &Step| match applied.iter().find(|(v, _)| *v == step.version) {
            Some((_, created)) => step.report("current", created.clone(), vec![]),
            None => step.report("pending", vec![], vec![]),
        };
        Ok(STEPS.iter().map(state).collect())
    }

    /// How the live tables differ from what the gates write to, each difference in words.
    pub async fn shape_differences(&self) -> Result<Vec<String>> {
        self.rows(include_str!("sql/migrate/shape.sql"), &[]).await?.iter().map(shape_difference).collect()
    }

    /// Which steps are missing among those applied, and which were applied in another text than ours.
    #[must_use]
    pub fn compare_migrations(applied: &[(i32, String)]) -> (Vec<String>, Vec<String>) {
        let name = |step: &Step| format!("{} ({})", step.version, step.name);
        let found = |step: &Step| applied.iter().find(|(version, _)| *version == step.version);
        let pending = STEPS.iter().filter(|s| found(s).is_none()).map(name).collect();
        let other = |s: &&Step| found(s).is_some_and(|(_, sum)| *sum != checksum(s.up));
        let newer = applied.iter().filter(|(v, _)| STEPS.iter().all(|s| s.version != *v));
        let foreign = STEPS.iter().filter(other).map(name).chain(newer.map(|(v, _)| v.to_string())).collect();
        (pending, foreign)
    }

    /// Takes everything away again, newest first. Refuses when that would discard recorded handoffs, unless told to.
    pub async fn revert(&mut self, discard: bool) -> Result<Vec<StepReport>> {
        let applied = self.migration_status().await?;
        let created = applied.iter().find(|s| s.version == 1).map(|s| s.created.clone()).unwrap_or_default();
        if applied.iter().all(|s| s.state == "pending") {
            return Ok(vec![]);
        }
        let loss = self.loss(&created).await?;
        if !discard && !loss.is_nothing() {
            return Err(Error::new(
                Kind::Refused,
                format!(
                    "revert would discard {} recorded and {} captured handoffs, {} dead letters and {} source rows{}; say --discard to do so",
                    loss.signals,
                    loss.captured,
                    loss.dead_letters,
                    loss.source_rows,
                    loss.forgotten()
                ),
            ));
        }
        let transaction = self.client.transaction().await?;
        transaction.batch_execute(include_str!("sql/migrate/begin.sql")).await?;
        let mut reports = Vec::new();
        for step in STEPS
            .iter()
            .rev()
            .filter(|s| applied.iter().any(|a| a.version == s.version && a.state == "current"))
        {
            match step.down {
                Some(down) => {
                    transaction.batch_execute(down).await.context(format!("reverting {}", step.name))?
                }
                None => {
                    for object in created.iter().rev() {
                        let drop = quote::fill(
                            include_str!("sql/migrate/drop.sql"),
                            &[("table", &quote::identifier(object))],
                        );
                        transaction.batch_execute(&drop).await.context(format!("dropping {object}"))?;
                    }
                }
            }
            reports.push(step.report("reverted", created.clone(), vec![]));
        }
        transaction.batch_execute(include_str!("sql/migrate/end.sql")).await?;
        transaction.commit().await?;
        Ok(reports)
    }

    /// Counts only in tables that would go: those of the substrate that we created, and our own.
    async fn loss(&self, created: &[String]) -> Result<Loss> {
        let there = self.one(include_str!("sql/migrate/exists.sql"), &[&"gov_retired_range"]).await?;
        let retired = if there.try_get(0)? {
            self.one(include_str!("sql/migrate/loss_retired.sql"), &[]).await?.try_get(0)?
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
        let sql = quote::fill(include_str!("sql/migrate/loss.sql"), &places);
        Ok(self.client.query_one(&sql, &[]).await?.try_get(0)?)
    }
}

impl Step {
    fn report(&self, state: &'static str, created: Vec<String>, adopted: Vec<String>) -> StepReport {
        StepReport { version: self.version, name: self.name.to_owned(), state, created, adopted }
    }
}

/// Splits a migration at its `--@ object` markers. What stands before the first belongs to no object.
fn objects(sql: &str) -> Vec<(Option<&str>, &str)> {
    const MARKER: &str = "--@ object ";
    if !sql.contains(MARKER) {
        return vec![(None, sql)];
    }
    sql.split(MARKER)
        .skip(1)
        .filter_map(|part| part.split_once('\n').map(|(name, body)| (Some(name.trim()), body)))
        .collect()
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

fn shape_difference(row: &tokio_postgres::Row) -> Result<String> {
    let (table, column, wanted, found): (String, String, String, Option<String>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    Ok(match found {
        Some(found) => format!("{table}.{column} is {found}, expected {wanted}"),
        None => format!("{table} has no column {column} ({wanted})"),
    })
}

fn shape_error(missing: &[tokio_postgres::Row]) -> Result<Error> {
    let parts = missing.iter().map(shape_difference).collect::<Result<Vec<_>>>()?;
    Ok(Error::new(
        Kind::Catalogue,
        format!(
            "the live substrate has another shape and is never altered by us: {}; nothing was changed",
            parts.join("; ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_substrate_is_a_list_of_objects() {
        let names: Vec<_> = objects(STEPS[0].up).into_iter().filter_map(|(name, _)| name).collect();
        assert!(names.contains(&"birth_registry") && names.contains(&"event_outbox"), "{names:?}");
        assert_eq!(names.len(), 22);
        assert_eq!(objects("select 1"), [(None, "select 1")]);
    }
}
