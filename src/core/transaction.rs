//! From decoded changes to source rows. Relations are bound to sources by name, and values to columns by name.
//!
//! A change that does not fit is a [`Surprise`] and concerns one table. The stream then skips the changes of that table
//! and continues with the others. The reconciler reads the table itself, so no row is lost.

use crate::core::handoff::Source;
use crate::core::pgoutput::{Change, Datum, Relation, Tuple};
use crate::core::row::{Row, text_of};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use thiserror::Error;

/// Something in the stream that does not fit the registered sources.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Surprise {
    #[error(
        "the publication carries {0}, which is not a registered source; register it or take it out of the publication"
    )]
    UnknownRelation(String),
    #[error("a change names relation {0}, which the server did not describe")]
    UndescribedRelation(u32),
    #[error(
        "{table} is published without column {column}, which the source definition reads; was it dropped, renamed or left out of the column list?"
    )]
    MissingColumn { table: String, column: String },
    #[error(
        "{table} publishes column {column}, which the source definition does not read; narrow the publication's column list"
    )]
    ExtraColumn { table: String, column: String },
    #[error("{0} delivered a value that is not text")]
    NotText(String),
}

impl Surprise {
    /// Every kind of finding that a surprise is raised as.
    pub const CODES: [&str; 3] =
        ["stream_unknown_relation", "stream_column_mismatch", "stream_malformed_row"];

    /// The kind of finding that this surprise is raised as.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownRelation(_) | Self::UndescribedRelation(_) => Self::CODES[0],
            Self::MissingColumn { .. } | Self::ExtraColumn { .. } => Self::CODES[1],
            Self::NotText(_) => Self::CODES[2],
        }
    }
}

/// The result of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    Row(Arc<str>, Row),
    /// A row with text in the encoding of the database, in the order of the source's columns.
    Foreign(Arc<str>, Vec<Option<Bytes>>),
    /// Nothing to hand off, for example the description of a table or type.
    Nothing,
    /// A published truncation, update or delete. It hands nothing off, but raises a finding.
    NotABirth {
        table: String,
        action: &'static str,
    },
}

/// The encoding of the text in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Utf8,
    /// The encoding of the database. ASCII is the same in every server encoding; the server has to convert the rest.
    Foreign,
}

/// A table that the stream skips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The source of the table; `None` if no source has this table.
    pub source: Option<Arc<str>>,
}

/// The tables that the server has described on this connection.
#[derive(Debug)]
pub struct Relations {
    encoding: Encoding,
    sources: HashMap<(String, String), Arc<Source>>,
    bound: HashMap<u32, Binding>,
    /// The table of the last surprise.
    misfit: Option<(u32, Left)>,
    /// Tables that the stream skips, because of their present description.
    left: HashSet<u32>,
    /// The source of a table that was skipped and has just been described correctly.
    rejoined: Option<Arc<str>>,
}

#[derive(Debug)]
struct Binding {
    source: Arc<str>,
    table: String,
    /// For each column of the source, its position in the tuple.
    places: Vec<usize>,
}

impl Relations {
    #[must_use]
    pub fn new(sources: &[Arc<Source>], encoding: Encoding) -> Self {
        let key = |s: &Source| (s.definition.schema.clone(), s.definition.table().to_owned());
        let sources = sources.iter().map(|s| (key(s), Arc::clone(s))).collect();
        Self { encoding, sources, bound: HashMap::new(), misfit: None, left: HashSet::new(), rejoined: None }
    }

    /// Skips the table of the last surprise until the server describes it again. The caller makes sure that its rows
    /// are read another way. `None` if the surprise concerned no table.
    pub fn leave_to_the_tables(&mut self) -> Option<Left> {
        let (id, left) = self.misfit.take()?;
        self.left.insert(id);
        Some(left)
    }

    /// The source that the stream delivers again since the last change, if any.
    pub fn rejoined(&mut self) -> Option<Arc<str>> {
        self.rejoined.take()
    }

    /// Processes the next change of the stream.
    pub fn deliver(&mut self, change: Change) -> Result<Delivered, Surprise> {
        match change {
            Change::Relation(relation) => {
                // The old description of the table is out of date, even if the new one cannot be used.
                self.bound.remove(&relation.id);
                let was_left = self.left.remove(&relation.id);
                let named = self.sources.get(&(relation.namespace.clone(), relation.name.clone()));
                self.misfit = Some((relation.id, Left { source: named.map(|s| s.name().into()) }));
                let binding = self.bind(&relation)?;
                self.misfit = None;
                self.rejoined = was_left.then(|| Arc::clone(&binding.source));
                self.bound.insert(relation.id, binding);
                Ok(Delivered::Nothing)
            }
            Change::Insert { relation, .. } | Change::Update { relation } | Change::Delete { relation }
                if self.left.contains(&relation) =>
            {
                Ok(Delivered::Nothing)
            }
            Change::Insert { relation, new } => {
                let row = self.row(relation, &new);
                if let (Err(_), Some(binding)) = (&row, self.bound.get(&relation)) {
                    self.misfit = Some((relation, Left { source: Some(Arc::clone(&binding.source)) }));
                }
                row
            }
            Change::Update { relation } => self.not_a_birth(relation, "update"),
            Change::Delete { relation } => self.not_a_birth(relation, "delete"),
            Change::Truncate { relations } => {
                // One TRUNCATE statement raises one finding, which names every table.
                let known = relations.iter().filter(|id| !self.left.contains(id));
                let tables = known.map(|id| self.table(*id)).collect::<Result<Vec<_>, _>>()?;
                if tables.is_empty() {
                    return Ok(Delivered::Nothing);
                }
                Ok(Delivered::NotABirth { table: tables.join(", "), action: "truncate" })
            }
            Change::Type | Change::Origin | Change::Begin | Change::Commit | Change::Message => {
                Ok(Delivered::Nothing)
            }
        }
    }

    fn bind(&self, relation: &Relation) -> Result<Binding, Surprise> {
        let table = format!("{}.{}", relation.namespace, relation.name);
        let Some(source) = self.sources.get(&(relation.namespace.clone(), relation.name.clone())) else {
            return Err(Surprise::UnknownRelation(table));
        };
        let columns = &source.definition.columns;
        // A column that the definition does not list may hold content. It is better to skip the table than to carry
        // content.
        if let Some(extra) = relation.columns.iter().find(|c| !columns.contains(&c.name)) {
            return Err(Surprise::ExtraColumn { table, column: extra.name.clone() });
        }
        let place = |column: &String| {
            relation
                .columns
                .iter()
                .position(|c| c.name == *column)
                .ok_or_else(|| Surprise::MissingColumn { table: table.clone(), column: column.clone() })
        };
        let places = columns.iter().map(place).collect::<Result<_, _>>()?;
        Ok(Binding { source: source.name().into(), table, places })
    }

    fn row(&self, relation: u32, tuple: &Tuple) -> Result<Delivered, Surprise> {
        let binding = self.bound.get(&relation).ok_or(Surprise::UndescribedRelation(relation))?;
        let value = |&place: &usize| match tuple.0.get(place) {
            Some(Datum::Null) => Ok(None),
            Some(Datum::Text(bytes)) => Ok(Some(bytes)),
            Some(Datum::Unchanged | Datum::Binary(_)) | None => Err(Surprise::NotText(binding.table.clone())),
        };
        let values = binding.places.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let source = Arc::clone(&binding.source);
        if self.encoding == Encoding::Foreign && values.iter().flatten().any(|bytes| !bytes.is_ascii()) {
            return Ok(Delivered::Foreign(source, values.into_iter().map(|v| v.cloned()).collect()));
        }
        // A UTF-8 session cannot deliver text in another encoding, but a SQL_ASCII database can.
        let values = values.into_iter().map(|v| v.map(|bytes| text_of(bytes))).collect();
        Ok(Delivered::Row(source, Row::new(values)))
    }

    fn not_a_birth(&self, relation: u32, action: &'static str) -> Result<Delivered, Surprise> {
        Ok(Delivered::NotABirth { table: self.table(relation)?.to_owned(), action })
    }

    fn table(&self, relation: u32) -> Result<&str, Surprise> {
        let binding = self.bound.get(&relation).ok_or(Surprise::UndescribedRelation(relation))?;
        Ok(&binding.table)
    }
}

#[cfg(test)]
mod tests;
