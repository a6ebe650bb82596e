//! The frontier: the transaction id below which everything of a source is handed off. A pass reads the rows written
//! since.

mod careful;
mod pass;

pub use pass::FrontierRead;
pub(in crate::store) use pass::relation_read;

use crate::core::frontier::{Distrust, Window, distrust};
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::error::{Error, Kind, Result};
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::{from_pg, to_pg};
use crate::store::{Session, quote};
use tokio_postgres::types::ToSql;

/// What a snapshot covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Every transaction below `xmin` has ended. A row that this snapshot does not show was written at or above `xmin`.
    pub xmin: u64,
    pub next: u64,
    pub system_identifier: String,
    pub lsn: Option<Lsn>,
    pub taken_at: String,
}

/// The relation that the name of a source's table refers to, and the file that holds its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFile {
    pub oid: u32,
    pub filenode: Option<u32>,
}

/// The recorded frontier of a source, with the server and the relation that it is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontier {
    pub xid: u64,
    pub system_identifier: String,
    pub relation: Option<TableFile>,
}

impl Frontier {
    /// Why this frontier cannot select rows, given a snapshot and, if one is read, a relation.
    #[must_use]
    pub fn distrust(&self, snapshot: &Snapshot, relation: Option<TableFile>) -> Option<Distrust> {
        let same_server = self.system_identifier == snapshot.system_identifier;
        let same_table = relation.is_none() || relation == self.relation;
        distrust(self.xid, snapshot.next, same_server, same_table)
    }
}

/// The transaction that holds the frontier back.
pub struct FrontierHolder {
    /// For people.
    pub who: String,
    /// How many seconds it is open.
    pub open: Option<f64>,
    pub pid: Option<i32>,
    /// The name of a prepared transaction.
    pub prepared: Option<String>,
}

impl<R> Session<R> {
    pub async fn frontier(&self, worker: &str, source: &str) -> Result<Option<Frontier>> {
        let row = self.optional(include_str!("../sql/frontier/recorded.sql"), &[&worker, &source]).await?;
        row.map(|row| {
            let (oid, filenode): (Option<u32>, _) = (row.try_get(2)?, row.try_get(3)?);
            let relation = oid.map(|oid| TableFile { oid, filenode });
            Ok(Frontier { xid: parse_xid(row.try_get(0)?)?, system_identifier: row.try_get(1)?, relation })
        })
        .transpose()
    }

    /// What a snapshot taken now covers.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::from_row(&self.one(include_str!("../sql/frontier/snapshot.sql"), &[]).await?)
    }

    /// Describes the session or prepared transaction that holds the frontier back.
    pub async fn frontier_holder(&self) -> Result<Option<String>> {
        Ok(self.frontier_holder_since().await?.map(|holder| holder.who))
    }

    /// As [`frontier_holder`](Self::frontier_holder), with what it takes to end it.
    pub async fn frontier_holder_since(&self) -> Result<Option<FrontierHolder>> {
        let row = self.optional(include_str!("../sql/frontier/holder.sql"), &[]).await?;
        row.map(|row| {
            let who: String = row.try_get("who")?;
            let role: Option<String> = row.try_get("role")?;
            let application: Option<String> = row.try_get("application_name")?;
            let open: Option<f64> = row.try_get("open_seconds")?;
            let named = application.filter(|a| !a.is_empty()).map(|a| format!(", {a}")).unwrap_or_default();
            let since = open.map(|s| format!(", open for {s:.0} s")).unwrap_or_default();
            let role = role.unwrap_or_else(|| "unknown role".to_owned());
            let who = format!("{who} ({role}{named}{since})");
            Ok(FrontierHolder { who, open, pid: row.try_get("pid")?, prepared: row.try_get("gid")? })
        })
        .transpose()
    }
}

impl<R: Writes> Session<R> {
    /// Advances the frontier. The caller has handed off everything below it in this relation.
    pub async fn advance_frontier(
        &self,
        lease: &Lease,
        source: &Source,
        snapshot: &Snapshot,
        relation: TableFile,
    ) -> Result<()> {
        let frontier = snapshot.xmin.to_string();
        let (system, lsn) = (&snapshot.system_identifier, snapshot.lsn.map(to_pg));
        let params: [&(dyn ToSql + Sync); 10] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &source.name(),
            &frontier,
            system,
            &lsn,
            &relation.oid,
            &relation.filenode,
            &source.version,
        ];
        self.one(include_str!("../sql/frontier/advance.sql"), &params).await?;
        Ok(())
    }
}

impl Snapshot {
    pub(super) fn from_row(row: &tokio_postgres::Row) -> Result<Self> {
        if row.try_get::<_, bool>("recovering")? {
            return Err(Error::new(
                Kind::Catalogue,
                "this is a standby; its snapshot cannot certify anything, connect to the primary",
            ));
        }
        Ok(Self {
            xmin: parse_xid(row.try_get("xmin")?)?,
            next: parse_xid(row.try_get("xmax")?)?,
            system_identifier: row.try_get("system_identifier")?,
            lsn: row.try_get::<_, Option<_>>("lsn")?.map(from_pg),
            taken_at: row.try_get("taken_at")?,
        })
    }
}

/// The largest window that is written as a list of transaction ids. A list is cheaper than a comparison of bytes until
/// it no longer fits the processor's caches. Measured on a million rows, relative to a bare count: 1.3 with a thousand
/// ids, 1.7 with sixty thousand ids, 1.6 with bytes.
const LISTED: u32 = 16_384;

/// A condition for rows that a transaction of this window inserted. The type `xid` has no order, but it has equality,
/// and its bytes have an order. The server can run such a scan in parallel, which it cannot do with `age`.
#[must_use]
pub fn written_in(window: Window) -> String {
    if window.width() <= LISTED {
        let ids: Vec<String> = window.ids().map(|id| id.to_string()).collect();
        return format!("t.xmin = any ('{{{}}}'::xid[])", ids.join(","));
    }
    let bytes = |xid: u32| format!("{}::bytea", quote::literal(&format!("\\x{xid:08x}")));
    let either = if window.wraps() { "or" } else { "and" };
    format!("xidsend(t.xmin) >={} {either} xidsend(t.xmin) <{}", bytes(window.first), bytes(window.end))
}

fn parse_xid(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::new(Kind::Internal, format!("`{text}` is not a transaction id")))
}
