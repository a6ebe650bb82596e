//! The checks of a source against the catalogue: whether its definition fits the table, and how it will be read.

use crate::core::dead_letter::code;
use crate::core::definition::{OrderType, SourceDefinition};
use crate::core::payload::{Violation, forbidden};
use crate::error::{Error, Kind, Result};
use crate::store::{Session, quote};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The types of pgvector.
const VECTORS: [&str; 3] = ["vector", "halfvec", "sparsevec"];

/// How a source is read from its table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// By the key and the open ranges: the cost depends on the number of new rows.
    Ranges { index: String },
    /// By the frontier: a sequential scan with a filter.
    Frontier { why: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    sql_type: String,
    /// The type with length and precision, to which the server pads or rounds a value.
    declared: String,
    readable: bool,
    not_null: bool,
}

/// A table as the catalogue describes it. A table that does not exist has no columns.
struct Table {
    columns: Vec<Column>,
    partitioned: bool,
    /// Other tables inherit from it.
    inherited: bool,
    /// The role may read the system columns `xmin` and `ctid`, which prove completeness.
    provable: bool,
}

/// Types whose value is exactly the text that is written.
const PLAIN: [&str; 2] = ["text", "character varying"];

impl<R> Session<R> {
    /// Rejects a definition that does not fit the catalogue, and names the table, column or type at fault.
    pub async fn check_source(&self, source: &SourceDefinition) -> Result<Strategy> {
        let rows =
            self.rows(include_str!("../sql/source/columns.sql"), &[&source.schema, &source.table()]).await?;
        let table = Table::from_rows(&rows)?;
        table.holds_rows(source)?;
        table.may_be_read(source)?;
        table.has_types(source)?;
        self.check_values(source, &table.columns).await?;
        self.check_key(source, &table).await?;
        Ok(strategy(source))
    }

    /// The key identifies a row. If two rows share a key or have none, the second would be taken for the first and not
    /// handed off.
    async fn check_key(&self, source: &SourceDefinition, table: &Table) -> Result<()> {
        let id = &source.id.column;
        let params: [&(dyn ToSql + Sync); 3] = [&source.schema, &source.table(), id];
        let unique: bool =
            self.one(include_str!("../sql/source/unique_index.sql"), &params).await?.try_get(0)?;
        if unique && table.column(id).is_some_and(|c| c.not_null) {
            return Ok(());
        }
        let problem = format!(
            "column {id} of {} must have a unique index of its own and be not null, as a primary key is: rows that share a \
             key would be taken for one",
            place(source)
        );
        Err(misfit(Kind::Catalogue, source, &problem))
    }

    /// Rules compare text, and the text of a boolean is `t`, not `true`. So a test may use only values in the form in
    /// which the server writes them. Otherwise a rule could never match.
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
                let sql = quote::fill(include_str!("../sql/source/shown.sql"), &places);
                // Not kept as a prepared statement, because the text differs for every value.
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
                        "compares with `{value}`, which {} writes as `{shown}`; use that form",
                        column.declared
                    );
                    return Err(Error::new(Kind::Catalogue, problem(what)));
                }
            }
        }
        Ok(())
    }

    /// Whether a definition would carry contents: the reason code and the problem, or `None`.
    pub async fn contents_in(&self, source: &SourceDefinition) -> Result<Option<(&'static str, String)>> {
        let rows =
            self.rows(include_str!("../sql/source/columns.sql"), &[&source.schema, &source.table()]).await?;
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

fn place(source: &SourceDefinition) -> String {
    format!("{}.{}", source.schema, source.table())
}

fn misfit(kind: Kind, source: &SourceDefinition, problem: &str) -> Error {
    Error::new(kind, format!("source {}: {problem}", source.name))
}

impl Table {
    /// From the rows of `columns.sql`: one row for each column. Each also repeats what is true of the whole table.
    fn from_rows(rows: &[Row]) -> Result<Self> {
        let column = |row: &Row| {
            Ok(Column {
                name: row.try_get("attname")?,
                sql_type: row.try_get("type")?,
                declared: row.try_get("declared")?,
                readable: row.try_get("readable")?,
                not_null: row.try_get("not_null")?,
            })
        };
        let columns = rows.iter().map(column).collect::<Result<_>>()?;
        let whole =
            |name| Ok::<_, Error>(rows.first().map(|row| row.try_get(name)).transpose()?.unwrap_or(false));
        let (partitioned, inherited) = (whole("partitioned")?, whole("inherited")?);
        Ok(Self { columns, partitioned, inherited, provable: whole("provable")? })
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }

    /// Checks that the table exists and holds its rows itself.
    fn holds_rows(&self, source: &SourceDefinition) -> Result<()> {
        let place = place(source);
        let problem = if self.columns.is_empty() {
            format!("table {place} does not exist; create it or correct schema and table")
        } else if self.partitioned {
            // The stream names the partition that a row went to, and transaction ids are compared within one partition.
            format!(
                "{place} is partitioned and holds no row itself; register each of its partitions as a source"
            )
        } else if self.inherited {
            // Rows of an inheriting table are in another file, come and go with that table, and may repeat keys.
            format!("{place} has tables that inherit from it; register each as a source of its own")
        } else {
            return Ok(());
        };
        Err(misfit(Kind::Catalogue, source, &problem))
    }

    /// Checks that every column of the definition exists and is readable, and also the system columns for passes and
    /// audits.
    fn may_be_read(&self, source: &SourceDefinition) -> Result<()> {
        let place = place(source);
        for name in &source.columns {
            let Some(column) = self.column(name) else {
                let known: Vec<_> = self.columns.iter().map(|c| c.name.as_str()).collect();
                let problem = format!("table {place} has no column {name}; it has {}", known.join(", "));
                return Err(misfit(Kind::Catalogue, source, &problem));
            };
            if !column.readable {
                let problem =
                    format!("no SELECT on column {name} of {place}; grant it as replication/roles.sql does");
                return Err(misfit(Kind::Privilege, source, &problem));
            }
        }
        if self.provable {
            return Ok(());
        }
        // Without these columns a source could be read but never certified. That would show only in the second pass.
        let problem = format!(
            "no SELECT on the system columns xmin and ctid of {place}, by which passes and audits prove that nothing was \
             missed; `grant select (xmin, ctid) on {}` as replication/roles.sql does",
            quote::table(source)
        );
        Err(misfit(Kind::Privilege, source, &problem))
    }

    /// Checks that key and order column have the types that the definition says.
    fn has_types(&self, source: &SourceDefinition) -> Result<()> {
        let found = |name: &str| self.column(name).map_or("", |c| c.sql_type.as_str());
        let differs = |column: &str, wanted: &str| {
            let (is, place) = (found(column), place(source));
            let problem = format!("column {column} of {place} is {is}, the definition says {wanted}");
            Err(misfit(Kind::Catalogue, source, &problem))
        };
        let (id_type, wanted) = (found(&source.id.column), source.id.id_type.sql_name());
        let text_like = wanted == "text" && PLAIN.contains(&id_type);
        if id_type != wanted && !text_like {
            return differs(&source.id.column, wanted);
        }
        let Some(order) = &source.order else { return Ok(()) };
        let wanted = match order.order_type {
            OrderType::Timestamptz => "timestamp with time zone",
            OrderType::Timestamp => "timestamp without time zone",
        };
        if found(&order.column) == wanted { Ok(()) } else { differs(&order.column, wanted) }
    }
}

/// Every key has a unique index, but only integer keys have ranges.
fn strategy(source: &SourceDefinition) -> Strategy {
    let (column, id_type) = (&source.id.column, source.id.id_type);
    if id_type.bounds().is_some() {
        Strategy::Ranges { index: column.clone() }
    } else {
        Strategy::Frontier { why: format!("{} keys have no ranges", id_type.sql_name()) }
    }
}
