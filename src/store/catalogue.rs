//! What the catalogue says of a source: whether its definition fits the table, and how it will be read.

use crate::core::dead_letter::code;
use crate::core::definition::{OrderType, SourceDefinition};
use crate::core::payload::{Violation, forbidden};
use crate::error::{Error, Kind, Result};
use crate::store::{Store, quote};
use tokio_postgres::types::ToSql;

/// The types of pgvector.
const VECTORS: [&str; 3] = ["vector", "halfvec", "sparsevec"];

/// How the poller will read a source.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// By the key and its open id ranges: cost follows new rows.
    Ranges { index: String },
    /// By the transaction frontier: a sequential filter.
    Frontier { why: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    sql_type: String,
    /// With length and precision, which a value is padded or rounded to.
    declared: String,
    readable: bool,
    not_null: bool,
}

/// Types whose values are the text they are written as.
const PLAIN: [&str; 2] = ["text", "character varying"];

impl Store {
    /// Refuses a definition that the catalogue does not bear out, saying which table, column or type is wrong.
    pub async fn check_source(&self, source: &SourceDefinition) -> Result<Strategy> {
        let place = format!("{}.{}", source.schema, source.table());
        let rows =
            self.rows(include_str!("sql/source/columns.sql"), &[&source.schema, &source.table()]).await?;
        let columns: Vec<Column> = rows
            .iter()
            .map(|row| {
                Ok(Column {
                    name: row.try_get("attname")?,
                    sql_type: row.try_get("type")?,
                    declared: row.try_get("declared")?,
                    readable: row.try_get("readable")?,
                    not_null: row.try_get("not_null")?,
                })
            })
            .collect::<Result<_>>()?;
        let wrong =
            |kind, problem: String| Err(Error::new(kind, format!("source {}: {problem}", source.name)));
        if columns.is_empty() {
            return wrong(
                Kind::Catalogue,
                format!("table {place} does not exist; create it or correct schema and table"),
            );
        }
        if rows.first().map(|row| row.try_get("partitioned")).transpose()?.unwrap_or(false) {
            // The stream names the partition a row went to, and a transaction id is one of a partition as well.
            return wrong(
                Kind::Catalogue,
                format!(
                    "{place} is partitioned and holds no row itself; register each of its partitions as a source"
                ),
            );
        }
        if rows.first().map(|row| row.try_get("inherited")).transpose()?.unwrap_or(false) {
            // Rows of another file, that may come and go with it, and keys that repeat from table to table.
            return wrong(
                Kind::Catalogue,
                format!("{place} has tables that inherit from it; register each as a source of its own"),
            );
        }
        for name in &source.columns {
            let Some(column) = columns.iter().find(|c| c.name == *name) else {
                let known: Vec<_> = columns.iter().map(|c| c.name.as_str()).collect();
                return wrong(
                    Kind::Catalogue,
                    format!("table {place} has no column {name}; it has {}", known.join(", ")),
                );
            };
            if !column.readable {
                return wrong(
                    Kind::Privilege,
                    format!("no SELECT on column {name} of {place}; grant it as replication/roles.sql does"),
                );
            }
        }
        // Without these a source could be read but never certified, which would come out with the second pass only.
        if !rows.first().map(|row| row.try_get("provable")).transpose()?.unwrap_or(false) {
            return wrong(
                Kind::Privilege,
                format!(
                    "no SELECT on the system columns xmin and ctid of {place}, by which passes and audits prove that nothing was \
                     missed; `grant select (xmin, ctid) on {}` as replication/roles.sql does",
                    quote::table(source)
                ),
            );
        }
        let found = |name: &str| columns.iter().find(|c| c.name == name).map_or("", |c| c.sql_type.as_str());
        let id_type = found(&source.id.column);
        let wanted = source.id.id_type.sql_name();
        let text_like = wanted == "text" && (id_type == "character varying" || id_type == "text");
        if id_type != wanted && !text_like {
            return wrong(
                Kind::Catalogue,
                format!("column {} of {place} is {id_type}, the definition says {wanted}", source.id.column),
            );
        }
        if let Some(order) = &source.order {
            let wanted = match order.order_type {
                OrderType::Timestamptz => "timestamp with time zone",
                OrderType::Timestamp => "timestamp without time zone",
            };
            let is = found(&order.column);
            if is != wanted {
                return wrong(
                    Kind::Catalogue,
                    format!("column {} of {place} is {is}, the definition says {wanted}", order.column),
                );
            }
        }
        self.check_values(source, &columns).await?;
        // A row is known by its key. Of two that share one, or have none, the second would be taken for the first and absorbed.
        let id = &source.id.column;
        let params: [&(dyn ToSql + Sync); 3] = [&source.schema, &source.table(), id];
        let unique: bool =
            self.one(include_str!("sql/source/unique_index.sql"), &params).await?.try_get(0)?;
        if !unique || !columns.iter().any(|c| c.name == *id && c.not_null) {
            return wrong(
                Kind::Catalogue,
                format!(
                    "column {id} of {place} must have a unique index of its own and be not null, as a primary key is: rows that \
                     share a key would be taken for one"
                ),
            );
        }
        Ok(strategy(source))
    }

    /// Rules compare text: `true` is a boolean's value and not its text, which is `t`. So the values of tests are taken only
    /// as the server itself writes them; then no rule waits in vain.
    async fn check_values(&self, source: &SourceDefinition, columns: &[Column]) -> Result<()> {
        let tests = source.exclude.iter().chain(source.rules.iter().flat_map(|rule| &rule.when));
        for test in tests {
            let Some(column) = columns.iter().find(|c| c.name == test.column) else { continue };
            if PLAIN.contains(&column.sql_type.as_str()) {
                continue;
            }
            let problem =
                |what: String| format!("source {}: the test on {} {what}", source.name, column.name);
            for value in test.equals.iter().chain(test.one_of.iter().flatten()) {
                let places = [("value", &*quote::literal(value)), ("type", &column.declared)];
                let sql = quote::fill(include_str!("sql/source/shown.sql"), &places);
                // Not prepared for the session: every value is another statement.
                let shown =
                    self.answer(self.client.query_one(&sql, &[])).await.map_err(|e| match e.kind {
                        Kind::Data => Error::new(
                            Kind::Catalogue,
                            problem(format!("compares with `{value}`, which is no {}", column.declared)),
                        ),
                        _ => e,
                    })?;
                let shown: String = shown.try_get(0)?;
                if shown != *value {
                    let what = format!(
                        "compares with `{value}`, which {} writes as `{shown}`; write it so",
                        column.declared
                    );
                    return Err(Error::new(Kind::Catalogue, problem(what)));
                }
            }
        }
        Ok(())
    }

    /// Whether a definition would carry contents: the reason code and what is wrong, or nothing.
    pub async fn contents_in(&self, source: &SourceDefinition) -> Result<Option<(&'static str, String)>> {
        let rows =
            self.rows(include_str!("sql/source/columns.sql"), &[&source.schema, &source.table()]).await?;
        for row in &rows {
            let (name, sql_type): (String, String) = (row.try_get("attname")?, row.try_get("type")?);
            if !source.columns.contains(&name) {
                continue;
            }
            let code = match forbidden(&name) {
                Some(Violation::Key(_)) => code::PAYLOAD,
                Some(Violation::Vector) => code::VECTOR,
                None if VECTORS.contains(&sql_type.as_str()) => code::VECTOR,
                None if sql_type == "bytea" => code::PAYLOAD,
                None => continue,
            };
            let problem = format!(
                "{code}: source {}: column {name} ({sql_type}) holds contents, and a signal carries none; take it out of `columns`",
                source.name
            );
            return Ok(Some((code, problem)));
        }
        Ok(None)
    }
}

/// Every key has a unique index; ranges are for those that can be counted.
fn strategy(source: &SourceDefinition) -> Strategy {
    let (column, id_type) = (&source.id.column, source.id.id_type);
    if id_type.bounds().is_some() {
        Strategy::Ranges { index: column.clone() }
    } else {
        Strategy::Frontier { why: format!("{} keys have no ranges", id_type.sql_name()) }
    }
}
