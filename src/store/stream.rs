//! The recorded position of a slot's stream, and the position of the server's log.

use crate::core::continuity::Position;
use crate::core::lsn::Lsn;
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::{from_pg, to_pg};
use tokio_postgres::types::ToSql;

impl<R> Session<R> {
    pub async fn stream_position(&self, slot: &str) -> Result<Option<Position>> {
        let row = self.optional(include_str!("sql/stream/position.sql"), &[&slot]).await?;
        row.map(|row| {
            Ok(Position {
                system_identifier: row.try_get(0)?,
                timeline: row.try_get(1)?,
                durable: from_pg(row.try_get(2)?),
            })
        })
        .transpose()
    }

    /// The present end of the server's log.
    pub async fn current_lsn(&self) -> Result<Lsn> {
        Ok(from_pg(self.one(include_str!("sql/stream/current_lsn.sql"), &[]).await?.try_get(0)?))
    }
}

impl<R: Writes> Session<R> {
    /// Binds the slot to a server and a starting position.
    pub async fn bind_stream(&self, lease: &Lease, slot: &str, at: &Position) -> Result<()> {
        let lsn = to_pg(at.durable);
        let params: [&(dyn ToSql + Sync); 7] =
            [&lease.worker, &lease.owner, &lease.term, &slot, &at.system_identifier, &at.timeline, &lsn];
        self.one(include_str!("sql/stream/bind.sql"), &params)
            .await
            .context("recording the stream's start")?;
        Ok(())
    }

    /// Records that every row before `lsn` is handed off.
    pub async fn confirm_stream(&self, lease: &Lease, slot: &str, lsn: Lsn) -> Result<()> {
        let lsn = to_pg(lsn);
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &slot, &lsn];
        self.one(include_str!("sql/stream/confirm.sql"), &params).await?;
        Ok(())
    }

    /// Writes a message to the log, which a live stream then delivers. Returns its position.
    pub async fn emit_probe(&self) -> Result<Lsn> {
        Ok(from_pg(self.one(include_str!("sql/stream/emit_probe.sql"), &[]).await?.try_get(0)?))
    }

    /// Makes the server write its log to disk. Returns the position up to which it is written.
    pub async fn flush_log(&self) -> Result<Lsn> {
        Ok(from_pg(self.one(include_str!("sql/stream/flush_log.sql"), &[]).await?.try_get(0)?))
    }
}
