//! Publication and slot: what they should be, what they are, making them so.
//!
//! The publication comes before the slot, always: a slot decodes with the catalogue of its own time, and one that is older
//! than the publication cannot use it. Row contents stay behind the column list; our own rows behind the row filter.

use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::error::{Context, Error, Kind, Result};
use crate::store::value::from_pg;
use crate::store::{Store, quote};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// How the note on a publication of ours begins, as `publication_note.sql` writes it. The two digests follow.
const NOTE: &str = "gov-handoff: row filters ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub confirmed: Lsn,
    pub active_pid: Option<i32>,
    /// The server has thrown away WAL that the slot still needed.
    pub lost: bool,
    pub retained: Option<i64>,
}

/// A slot of ours that the configuration does not name and no session reads. It retains log until somebody drops it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusedSlot {
    pub slot: String,
    /// `None` when the server no longer keeps log for it.
    pub retained_bytes: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct PublishedTable {
    schema: String,
    table: String,
    columns: Vec<String>,
    filtered: bool,
}

/// What the server would need for streaming, in the operator's words.
fn unavailable(problem: impl Into<String>) -> Error {
    Error::new(Kind::Replication, problem)
}

fn no_slot(name: &str) -> Error {
    unavailable(format!(
        "no free replication slot for {name}: raise max_replication_slots or drop an unused slot"
    ))
}

/// Said in a replication session that brings text as the database keeps it ([`Store::streams_raw`]).
pub const ANY_BYTES: &str = include_str!("sql/session/any_bytes.sql");

/// Asked of both ends: rows of another server, or of another of its databases, would be recorded as if they were ours.
pub const SERVER_IDENTITY: &str = include_str!("sql/replication/server_identity.sql");

/// What is wrong with a publication.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationProblem {
    /// There is none of that name, so every slot is older than the one that will be made.
    #[error("publication {name} does not exist")]
    Absent { name: String },
    #[error("publication {name} {how}")]
    Wrong { name: String, how: String },
}

impl Store {
    /// Whether this session's server and role can stream at all.
    pub async fn check_streaming(&self) -> Result<()> {
        let row = self.one(include_str!("sql/replication/server.sql"), &[]).await?;
        let wal_level: String = row.try_get("wal_level")?;
        if wal_level != "logical" {
            return Err(unavailable(format!(
                "wal_level is {wal_level}, streaming needs logical: set wal_level = logical in postgresql.conf and restart the server"
            )));
        }
        if row.try_get::<_, String>("encoding")? == "SQL_ASCII" {
            // The transport always asks for UTF-8, and the server ends a stream at the first text that is none.
            return Err(unavailable(
                "the database's encoding is SQL_ASCII, whose text need not be UTF-8, and a stream would stop at the first that is not; poll, which takes any bytes",
            ));
        }
        if row.try_get("recovering")? {
            return Err(unavailable("the server is a standby; stream from the primary"));
        }
        if !row.try_get::<_, Option<bool>>("may_replicate")?.unwrap_or(false) {
            return Err(Error::new(
                Kind::Privilege,
                "the role has no REPLICATION attribute: run replication/roles.sql or `alter role … replication`, or use --mode poll",
            ));
        }
        Ok(())
    }

    /// What a session that reaches the same server and database answers to [`SERVER_IDENTITY`].
    pub async fn server_identity(&self) -> Result<String> {
        Ok(self.one(SERVER_IDENTITY, &[]).await?.try_get(0)?)
    }

    /// Nothing can be recorded on a standby, and its snapshots certify nothing.
    pub async fn refuse_standby(&self) -> Result<()> {
        let row = self.one(include_str!("sql/replication/server.sql"), &[]).await?;
        if row.try_get("recovering")? {
            return Err(Error::new(
                Kind::Catalogue,
                "the server is a standby, which takes no writes and whose snapshots certify nothing; connect to the primary",
            ));
        }
        Ok(())
    }

    pub async fn slot(&self, name: &str, database: &str) -> Result<Option<Slot>> {
        let Some(row) = self.optional(include_str!("sql/replication/slot.sql"), &[&name]).await? else {
            return Ok(None);
        };
        let plugin: Option<String> = row.try_get("plugin")?;
        let of: Option<String> = row.try_get("database")?;
        if plugin.as_deref() != Some("pgoutput") || of.as_deref() != Some(database) {
            return Err(unavailable(format!(
                "slot {name} is not ours: expected plugin pgoutput in database {database}, found {} in {}; name another with --slot",
                plugin.as_deref().unwrap_or("a physical slot"),
                of.as_deref().unwrap_or("no database"),
            )));
        }
        let status: Option<String> = row.try_get("wal_status")?;
        Ok(Some(Slot {
            confirmed: row.try_get::<_, Option<_>>("confirmed_flush_lsn")?.map(from_pg).unwrap_or_default(),
            active_pid: row.try_get("active_pid")?,
            lost: status.as_deref() == Some("lost"),
            retained: row.try_get("retained")?,
        }))
    }

    /// Refuses when the server has no slot left, so that nothing else is made in vain.
    pub async fn check_slot_free(&self, name: &str) -> Result<()> {
        let row = self.one(include_str!("sql/replication/server.sql"), &[]).await?;
        if row.try_get("slot_free")? { Ok(()) } else { Err(no_slot(name)) }
    }

    pub async fn create_slot(&self, name: &str) -> Result<Lsn> {
        let version: i32 =
            self.one(include_str!("sql/replication/server.sql"), &[]).await?.try_get("version")?;
        let sql = if version >= 170_000 {
            include_str!("sql/replication/slot_create_failover.sql")
        } else {
            include_str!("sql/replication/slot_create.sql")
        };
        let row = self.one(sql, &[&name]).await.map_err(|e| match e.code.as_deref() {
            Some("53400") => no_slot(name),
            Some("42501") => Error::new(
                Kind::Privilege,
                format!("the role may not create slot {name}: it needs REPLICATION"),
            ),
            _ => e.context(format!("creating slot {name}")),
        })?;
        Ok(from_pg(row.try_get(0)?))
    }

    /// How much log the server keeps for our slot; `None` if there is no such slot.
    pub async fn slot_retained(&self, name: &str) -> Result<Option<i64>> {
        let row = self.optional(include_str!("sql/replication/slot_retained.sql"), &[&name]).await?;
        Ok(row.map(|r| r.try_get::<_, Option<i64>>(0)).transpose()?.flatten())
    }

    /// Slots of ours that the configuration does not name and no session reads.
    pub async fn unused_slots(&self, configured: &str) -> Result<Vec<UnusedSlot>> {
        let rows = self.rows(include_str!("sql/replication/slots_unused.sql"), &[&configured]).await?;
        let slot = |row: &tokio_postgres::Row| {
            Ok(UnusedSlot { slot: row.try_get("slot_name")?, retained_bytes: row.try_get("retained")? })
        };
        rows.iter().map(slot).collect()
    }

    /// Makes whoever holds the slot let go of it.
    pub async fn release_slot(&self, name: &str) -> Result<()> {
        self.rows(include_str!("sql/replication/slot_release.sql"), &[&name])
            .await
            .context(format!("releasing slot {name}"))?;
        Ok(())
    }

    pub async fn drop_slot(&self, name: &str) -> Result<()> {
        self.rows(include_str!("sql/replication/slot_drop.sql"), &[&name])
            .await
            .context(format!("dropping slot {name}"))?;
        Ok(())
    }

    /// `None` when the publication carries exactly the sources, else what is wrong with it.
    pub async fn publication_problem(
        &self,
        name: &str,
        sources: &[Arc<Source>],
    ) -> Result<Option<PublicationProblem>> {
        let wrong = |how: String| PublicationProblem::Wrong { name: name.to_owned(), how };
        let Some(row) = self.optional(include_str!("sql/replication/publication.sql"), &[&name]).await?
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
            .map(|t| wrong(format!("carries {}.{}, which is no registered source", t.schema, t.table))))
    }

    /// Changes whenever the publication's catalogue entries do; empty when there is none.
    pub async fn publication_version(&self, name: &str) -> Result<String> {
        let row = self.optional(include_str!("sql/replication/publication_version.sql"), &[&name]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    /// Makes the publication carry exactly the sources; the role must own them.
    pub async fn put_publication(&self, name: &str, sources: &[Arc<Source>]) -> Result<()> {
        let sources = self.publishable(sources).await?.sources;
        if sources.is_empty() {
            return Err(unavailable(
                "none of the sources can be in a publication; `gov-handoff sources check` says why",
            ));
        }
        let sql = publication_sql(name, &sources, self.has_publication(name).await?);
        self.answer(self.client.batch_execute(&sql)).await.map_err(|e| match e.kind {
            Kind::Privilege => Error::new(
                Kind::Privilege,
                format!("the role may not create publication {name} ({e}): have the owner of the tables run `gov-handoff replication sql`"),
            ),
            _ => e.context(format!("creating publication {name}")),
        })
    }

    /// The statements a DBA may run by hand instead, as what is there needs them.
    pub async fn replication_sql(
        &self,
        publication: &str,
        slot: &str,
        database: &str,
        sources: &[Arc<Source>],
    ) -> Result<String> {
        let published = self.has_publication(publication).await?;
        let sources = &self.publishable(sources).await?.sources;
        let there = self.slot(slot, database).await?;
        let publication = publication_sql(publication, sources, published);
        let slot = slot_sql(slot, there.as_ref(), published);
        let places = [("publication", publication.trim_end()), ("slot", slot.trim_end())];
        Ok(quote::fill(include_str!("sql/replication/setup.sql"), &places).trim_end().to_owned())
    }

    async fn has_publication(&self, name: &str) -> Result<bool> {
        Ok(self.optional(include_str!("sql/replication/publication.sql"), &[&name]).await?.is_some())
    }

    /// Whether a slot of this name retains log for this database.
    pub async fn has_slot(&self, name: &str) -> Result<bool> {
        Ok(self.optional(include_str!("sql/replication/slot_retained.sql"), &[&name]).await?.is_some())
    }

    pub async fn drop_publication(&self, name: &str) -> Result<()> {
        let sql = quote::fill(
            include_str!("sql/replication/publication_drop.sql"),
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

/// What of the row filters is not as it was when the publication was made. One without our note was made by somebody else,
/// and what its filters mean is for them to know.
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

/// What is to be done about a slot, given the one that is there and whether there was a publication before.
fn slot_sql(name: &str, there: Option<&Slot>, published: bool) -> String {
    let create = quote::fill(include_str!("sql/replication/slot_setup.sql"), &[("slot", name)]);
    let places = [("slot", name), ("create", create.trim_end())];
    match there {
        None => create,
        Some(slot) if published && !slot.lost => {
            quote::fill(include_str!("sql/replication/slot_kept.sql"), &places)
        }
        Some(_) => quote::fill(include_str!("sql/replication/slot_renew.sql"), &places),
    }
}

/// Several statements: whoever sends them as one message has them in one transaction, without a block that an error would
/// leave open.
#[must_use]
fn publication_sql(name: &str, sources: &[Arc<Source>], exists: bool) -> String {
    let tables: Vec<_> = sources.iter().map(|s| published(s)).collect();
    let (quoted, tables) = (quote::identifier(name), tables.join(",\n    "));
    let note = quote::fill(
        include_str!("sql/replication/publication_note.sql"),
        &[("name", &quote::literal(name)), ("asked", &filters_asked(sources))],
    );
    let places = [("name", &*quoted), ("tables", &tables), ("note", note.trim_end())];
    if exists {
        quote::fill(include_str!("sql/replication/publication_alter.sql"), &places)
    } else {
        quote::fill(include_str!("sql/replication/publication_create.sql"), &places)
    }
}

fn published(source: &Source) -> String {
    let filter = quote::captured(source, "").map(|f| format!(" where ({f})")).unwrap_or_default();
    let source = &source.definition;
    let columns: Vec<_> = source.columns.iter().map(|c| quote::identifier(c)).collect();
    format!("{} ({}){filter}", quote::table(source), columns.join(", "))
}
