//! Publication and slot: what they should be, what they are, and how to correct them.
//!
//! The publication is always made before the slot. A slot decodes with the catalogue of its own time, so a slot that is
//! older than the publication cannot use it. The column list keeps row contents out of the stream; the row filter keeps
//! our own rows out.

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

/// An error that says what the server lacks for streaming.
fn unavailable(problem: impl Into<String>) -> Error {
    Error::new(Kind::Replication, problem)
}

/// Sent in a replication session that delivers text in the encoding of the database ([`Session::streams_raw`]).
pub const ANY_BYTES: &str = include_str!("../sql/session/any_bytes.sql");

/// Asked in both sessions, the replication session and the writing one. If they reach different servers or databases,
/// foreign rows would be recorded as ours.
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
            // The replication client always asks for UTF-8, and the server ends a stream at the first text that is not
            // UTF-8.
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

    /// The answer to [`SERVER_IDENTITY`]. It is equal in all sessions that reach the same server and database.
    pub async fn server_identity(&self) -> Result<String> {
        Ok(self.one(SERVER_IDENTITY, &[]).await?.try_get(0)?)
    }

    /// Returns an error on a standby server: it takes no writes, and its snapshots certify nothing.
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

    /// The statements that make the publication carry exactly the sources.
    pub async fn publication_statements(&self, name: &str, sources: &[Arc<Source>]) -> Result<String> {
        let there = self.has_publication(name).await?;
        Ok(publication_sql(name, &self.publishable(sources).await?.sources, there))
    }

    /// The statements that a DBA can run by hand instead, given what already exists.
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
