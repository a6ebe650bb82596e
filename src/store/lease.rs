//! The lease in `queue_heartbeat`: one writer per worker, by the database's clock.

use crate::core::lease::LeaseView;
use crate::error::{Context, Error, Kind, Result};
use crate::store::Store;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Whoever replays dead letters works under this name.
pub const LETTERS: &str = "gov_handoff_dlq";

/// Proof of being the writer, presented with every effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub worker: String,
    pub owner: String,
    pub term: i64,
}

/// What an attempt to take the lease came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Held(Lease),
    /// Somebody else has it.
    Taken(LeaseView),
}

impl Store {
    pub async fn claim_lease(&self, worker: &str, owner: &str, ttl: Duration) -> Result<Claim> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 3] = [&worker, &owner, &ttl_ms];
        let row = self.one(include_str!("sql/lease_claim.sql"), &params).await.context("lease")?;
        claimed(&row, worker, owner, ttl)
    }

    /// The lease of those who replay dead letters, by the gate that an operator may use.
    pub async fn claim_letters(&self, owner: &str, ttl: Duration) -> Result<Claim> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 2] = [&owner, &ttl_ms];
        let row = self.one(include_str!("sql/dead_letter_lease.sql"), &params).await.context("lease")?;
        claimed(&row, LETTERS, owner, ttl)
    }

    /// Renews the lease and publishes `report` beside it.
    pub async fn renew_lease(&self, lease: &Lease, report: &serde_json::Value) -> Result<()> {
        let row = self
            .one(include_str!("sql/lease_renew.sql"), &[&lease.worker, &lease.owner, &lease.term, report])
            .await
            .context("renewing the lease")?;
        if row.try_get(0)? { Ok(()) } else { Err(Error::new(Kind::LeaseLost, "the lease was taken over")) }
    }

    pub async fn resign_lease(&self, lease: &Lease) -> Result<bool> {
        let row = self
            .one(include_str!("sql/lease_resign.sql"), &[&lease.worker, &lease.owner, &lease.term])
            .await?;
        Ok(row.try_get(0)?)
    }
}

fn claimed(row: &Row, worker: &str, owner: &str, ttl: Duration) -> Result<Claim> {
    let term = row.try_get("term")?;
    if row.try_get::<_, Option<bool>>("held")?.unwrap_or(false) {
        return Ok(Claim::Held(Lease { worker: worker.to_owned(), owner: owner.to_owned(), term }));
    }
    let age = Duration::from_millis(row.try_get::<_, i64>("age_ms")?.try_into().unwrap_or(0));
    Ok(Claim::Taken(LeaseView { owner: row.try_get("owner")?, term, age, ttl }))
}
