//! The publication: what it should carry, what it carries, and how to correct it.

use super::unavailable;
use crate::core::handoff::Source;
use crate::error::{Context, Error, Kind, Result};
use crate::store::role::Administers;
use crate::store::{Session, quote};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The start of the comment on a publication that we made, as `publication_note.sql` writes it. Two digests follow.
const NOTE: &str = "gov-handoff: row filters ";

#[derive(Debug, Deserialize)]
struct PublishedTable {
    schema: String,
    table: String,
    columns: Vec<String>,
    filtered: bool,
}

/// What is wrong with a publication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationProblem {
    /// No publication has that name. Every existing slot is older than the publication that will be made.
    #[error("publication {name} does not exist")]
    Absent { name: String },
    #[error("publication {name} {how}")]
    Wrong { name: String, how: String },
}

impl<R> Session<R> {
    /// `None` if the publication carries exactly the sources; otherwise the problem.
    pub async fn publication_problem(
        &self,
        name: &str,
        sources: &[Arc<Source>],
    ) -> Result<Option<PublicationProblem>> {
        let wrong = |how: String| PublicationProblem::Wrong { name: name.to_owned(), how };
        let Some(row) = self.optional(include_str!("../sql/replication/publication.sql"), &[&name]).await?
        else {
            return Ok(Some(PublicationProblem::Absent { name: name.to_owned() }));
        };
        if row.try_get("puballtables")? {
            return Ok(Some(wrong("is for all tables and would carry row contents".to_owned())));
        }
        if !row.try_get::<_, bool>("pubinsert")? || row.try_get("pubmore")? {
            return Ok(Some(wrong("must publish inserts and nothing else".to_owned())));
        }
        let tables: Vec<PublishedTable> = serde_json::from_value(row.try_get("tables")?)?;
        let sources = &self.publishable(sources).await?.sources;
        for source in sources {
            if let Some(problem) = table_problem(source, &tables) {
                return Ok(Some(wrong(problem)));
            }
        }
        let note: Option<String> = row.try_get("note")?;
        if let Some(problem) = filter_problem(note.as_deref(), sources, row.try_get("filters")?) {
            return Ok(Some(wrong(problem.to_owned())));
        }
        let known = |t: &PublishedTable| {
            sources.iter().any(|s| s.definition.schema == t.schema && s.definition.table() == t.table)
        };
        let stranger = tables.iter().find(|t| !known(t));
        Ok(stranger
            .map(|t| wrong(format!("carries {}.{}, which is not a registered source", t.schema, t.table))))
    }

    /// A text that changes whenever the publication's catalogue entries change. Empty if there is no publication.
    pub async fn publication_version(&self, name: &str) -> Result<String> {
        let row = self.optional(include_str!("../sql/replication/publication_version.sql"), &[&name]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    pub(super) async fn has_publication(&self, name: &str) -> Result<bool> {
        Ok(self.optional(include_str!("../sql/replication/publication.sql"), &[&name]).await?.is_some())
    }
}

impl<R: Administers> Session<R> {
    /// Makes the publication carry exactly the sources; the role must own them.
    pub async fn put_publication(&self, name: &str, sources: &[Arc<Source>]) -> Result<()> {
        let sources = self.publishable(sources).await?.sources;
        if sources.is_empty() {
            return Err(unavailable(
                "none of the sources can be in a publication; `gov-handoff sources check` says why",
            ));
        }
        let sql = publication_sql(name, &sources, self.has_publication(name).await?);
        let bounded = format!("{}{sql}\ncommit", include_str!("../sql/replication/bounded.sql"));
        let done = self.answer(self.client.batch_execute(&bounded)).await;
        if done.is_err() {
            self.answer(self.client.batch_execute("rollback")).await?;
        }
        done.map_err(|e| match e.kind {
            Kind::Privilege => Error::new(
                Kind::Privilege,
                format!("the role may not create publication {name} ({e}): have the owner of the tables run `gov-handoff replication sql`"),
            ),
            _ => e.context(format!("creating publication {name}")),
        })
    }

    pub async fn drop_publication(&self, name: &str) -> Result<()> {
        let sql = quote::fill(
            include_str!("../sql/replication/publication_drop.sql"),
            &[("name", &quote::identifier(name))],
        );
        self.answer(self.client.batch_execute(&sql)).await.context(format!("dropping publication {name}"))
    }
}

fn table_problem(source: &Source, tables: &[PublishedTable]) -> Option<String> {
    let filters = quote::captured(source, "").is_some();
    let source = &source.definition;
    let Some(table) = tables.iter().find(|t| t.schema == source.schema && t.table == source.table()) else {
        return Some(format!("does not carry {}.{}", source.schema, source.table()));
    };
    if let Some(extra) = table.columns.iter().find(|c| !source.columns.contains(c)) {
        return Some(format!(
            "carries column {extra} of {}, which is not among its address columns",
            table.table
        ));
    }
    if let Some(missing) = source.columns.iter().find(|c| !table.columns.contains(c)) {
        return Some(format!("does not carry column {missing} of {}", table.table));
    }
    if table.filtered != filters {
        return Some(format!(
            "has {} row filter on {}",
            if table.filtered { "a" } else { "no" },
            table.table
        ));
    }
    None
}

/// What has changed about the row filters since the publication was made. A publication without our comment was made by
/// somebody else, and its filters are not checked.
fn filter_problem(note: Option<&str>, sources: &[Arc<Source>], shown: &str) -> Option<&'static str> {
    let (asked, made) = note?.strip_prefix(NOTE)?.split_once(' ')?;
    if asked != filters_asked(sources) {
        return Some("was made for other exclusions than the sources have now");
    }
    (made != shown).then_some("has other row filters than it was made with")
}

/// A digest of the row filters that the definitions ask for.
fn filters_asked(sources: &[Arc<Source>]) -> String {
    let filter = |s: &Arc<Source>| {
        let filter = quote::captured(s, "")?;
        Some(format!("{} {filter}\n", quote::table(&s.definition)))
    };
    let mut filters: Vec<_> = sources.iter().filter_map(filter).collect();
    filters.sort_unstable();
    let digest = Sha256::digest(filters.concat().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Several statements. A caller that sends them in one message runs them in one transaction, without an explicit block
/// that an error would leave open.
pub(super) fn publication_sql(name: &str, sources: &[Arc<Source>], exists: bool) -> String {
    let tables: Vec<_> = sources.iter().map(|s| published(s)).collect();
    let (quoted, tables) = (quote::identifier(name), tables.join(",\n    "));
    let note = quote::fill(
        include_str!("../sql/replication/publication_note.sql"),
        &[("name", &quote::literal(name)), ("asked", &filters_asked(sources))],
    );
    let places = [("name", &*quoted), ("tables", &tables), ("note", note.trim_end())];
    if exists {
        quote::fill(include_str!("../sql/replication/publication_alter.sql"), &places)
    } else {
        quote::fill(include_str!("../sql/replication/publication_create.sql"), &places)
    }
}

fn published(source: &Source) -> String {
    let filter = quote::captured(source, "").map(|f| format!(" where ({f})")).unwrap_or_default();
    let source = &source.definition;
    let columns: Vec<_> = source.columns.iter().map(|c| quote::identifier(c)).collect();
    format!("{} ({}){filter}", quote::table(source), columns.join(", "))
}
