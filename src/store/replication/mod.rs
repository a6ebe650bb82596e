//! Publication and slot: what they should be, what they are, making them so.
//!
//! The publication comes before the slot, always: a slot decodes with the catalogue of its own time, and one that is older
//! than the publication cannot use it. Row contents stay behind the column list; our own rows behind the row filter.

mod publication;
mod publishable;
mod slot;

pub use publication::PublicationProblem;
pub use slot::{Slot, UnusedSlot};

use crate::core::handoff::Source;
use crate::error::{Error, Kind, Result};
use crate::store::{Session, quote};
use publication::publication_sql;
use slot::slot_sql;
use std::sync::Arc;

/// What the server would need for streaming, in the operator's words.
fn unavailable(problem: impl Into<String>) -> Error {
    Error::new(Kind::Replication, problem)
}

/// Said in a replication session that brings text as the database keeps it ([`Session::streams_raw`]).
pub const ANY_BYTES: &str = include_str!("../sql/session/any_bytes.sql");

/// Asked of both ends: rows of another server, or of another of its databases, would be recorded as if they were ours.
pub const SERVER_IDENTITY: &str = include_str!("../sql/replication/server_identity.sql");

impl<R> Session<R> {
    /// Whether this session's server and role can stream at all.
    pub async fn check_streaming(&self) -> Result<()> {
        let row = self.one(include_str!("../sql/replication/server.sql"), &[]).await?;
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
        let row = self.one(include_str!("../sql/replication/server.sql"), &[]).await?;
        if row.try_get("recovering")? {
            return Err(Error::new(
                Kind::Catalogue,
                "the server is a standby, which takes no writes and whose snapshots certify nothing; connect to the primary",
            ));
        }
        Ok(())
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
        Ok(quote::fill(include_str!("../sql/replication/setup.sql"), &places).trim_end().to_owned())
    }
}
