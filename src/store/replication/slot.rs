//! The slot: what it retains, which process reads it, and how it is created and dropped.

use super::unavailable;
use crate::core::lsn::Lsn;
use crate::error::{Context, Error, Kind, Result};
use crate::store::role::Administers;
use crate::store::value::from_pg;
use crate::store::{Session, quote};
use serde::Serialize;
use tokio_postgres::error::SqlState;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub confirmed: Lsn,
    pub active_pid: Option<i32>,
    /// The server has removed log that the slot still needed.
    pub lost: bool,
    pub retained: Option<i64>,
}

/// A slot of ours that the configuration does not name and no session reads. It retains log until it is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusedSlot {
    pub slot: String,
    /// `None` when the server no longer keeps log for it.
    pub retained_bytes: Option<i64>,
}

fn no_slot(name: &str) -> Error {
    unavailable(format!(
        "no free replication slot for {name}: raise max_replication_slots or drop an unused slot"
    ))
}

impl<R> Session<R> {
    pub async fn slot(&self, name: &str, database: &str) -> Result<Option<Slot>> {
        let Some(row) = self.optional(include_str!("../sql/replication/slot.sql"), &[&name]).await? else {
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

    /// Returns an error when the server has no free slot, before anything else is created.
    pub async fn check_slot_free(&self, name: &str) -> Result<()> {
        let row = self.one(include_str!("../sql/replication/server.sql"), &[]).await?;
        if row.try_get("slot_free")? { Ok(()) } else { Err(no_slot(name)) }
    }

    /// How much log the server keeps for our slot; `None` if there is no such slot.
    pub async fn slot_retained(&self, name: &str) -> Result<Option<i64>> {
        let row = self.optional(include_str!("../sql/replication/slot_retained.sql"), &[&name]).await?;
        Ok(row.map(|r| r.try_get::<_, Option<i64>>(0)).transpose()?.flatten())
    }

    /// Slots of ours that the configuration does not name and no session reads.
    pub async fn unused_slots(&self, configured: &str) -> Result<Vec<UnusedSlot>> {
        let rows = self.rows(include_str!("../sql/replication/slots_unused.sql"), &[&configured]).await?;
        let slot = |row: &tokio_postgres::Row| {
            Ok(UnusedSlot { slot: row.try_get("slot_name")?, retained_bytes: row.try_get("retained")? })
        };
        rows.iter().map(slot).collect()
    }

    /// Whether a slot of this name retains log for this database.
    pub async fn has_slot(&self, name: &str) -> Result<bool> {
        Ok(self.optional(include_str!("../sql/replication/slot_retained.sql"), &[&name]).await?.is_some())
    }
}

impl<R: Administers> Session<R> {
    pub async fn create_slot(&self, name: &str) -> Result<Lsn> {
        let version: i32 =
            self.one(include_str!("../sql/replication/server.sql"), &[]).await?.try_get("version")?;
        let sql = if version >= 170_000 {
            include_str!("../sql/replication/slot_create_failover.sql")
        } else {
            include_str!("../sql/replication/slot_create.sql")
        };
        let row = self.one(sql, &[&name]).await.map_err(|e| match e.state() {
            Some(SqlState::CONFIGURATION_LIMIT_EXCEEDED) => no_slot(name),
            Some(SqlState::INSUFFICIENT_PRIVILEGE) => Error::new(
                Kind::Privilege,
                format!("the role may not create slot {name}: it needs REPLICATION"),
            ),
            _ => e.context(format!("creating slot {name}")),
        })?;
        Ok(from_pg(row.try_get(0)?))
    }

    /// Ends the session that holds the slot.
    pub async fn release_slot(&self, name: &str) -> Result<()> {
        self.rows(include_str!("../sql/replication/slot_release.sql"), &[&name])
            .await
            .context(format!("releasing slot {name}"))?;
        Ok(())
    }

    pub async fn drop_slot(&self, name: &str) -> Result<()> {
        self.rows(include_str!("../sql/replication/slot_drop.sql"), &[&name])
            .await
            .context(format!("dropping slot {name}"))?;
        Ok(())
    }
}

/// The statements for a slot, given the existing slot and whether the publication existed before.
pub(super) fn slot_sql(name: &str, there: Option<&Slot>, published: bool) -> String {
    let create = quote::fill(include_str!("../sql/replication/slot_setup.sql"), &[("slot", name)]);
    let places = [("slot", name), ("create", create.trim_end())];
    match there {
        None => create,
        Some(slot) if published && !slot.lost => {
            quote::fill(include_str!("../sql/replication/slot_kept.sql"), &places)
        }
        Some(_) => quote::fill(include_str!("../sql/replication/slot_renew.sql"), &places),
    }
}
