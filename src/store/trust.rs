//! Trust: the producers that each source believes.

use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::{Lease, parts};
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::ToSql;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrustPolicy {
    pub source: String,
    /// The column role that names the producer of a row: `source_system` or `actor_ref`.
    pub by: String,
    /// The trusted producers; `None` if every producer is trusted.
    pub producers: Option<Vec<String>>,
    /// Captures that wait, counted for each producer that is not trusted.
    pub waiting: Value,
}

/// Signals moved in one commit. Every batch waits meanwhile, so the number is kept small.
const PROMOTED_AT_ONCE: i32 = 5_000;

/// The result of promoting one part of the captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promoted {
    pub rows: i64,
    pub more: bool,
}

/// The result of granting or revoking trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustChange {
    pub changed: bool,
    /// Rows that were captured as untrusted and are now handed off.
    pub promoted: i64,
}

impl<R> Session<R> {
    pub async fn trust(&self, worker: &str) -> Result<Vec<TrustPolicy>> {
        let rows = self
            .rows(include_str!("sql/trust/list.sql"), &[&worker])
            .await
            .context("reading whom the sources trust")?;
        rows.iter()
            .map(|row| {
                let producers: Option<Value> = row.try_get("producers")?;
                Ok(TrustPolicy {
                    source: row.try_get("source_name")?,
                    by: row.try_get("by")?,
                    producers: producers.map(serde_json::from_value).transpose()?,
                    waiting: row.try_get("waiting")?,
                })
            })
            .collect()
    }

    /// Whether a capture waits whose producer has become trusted.
    pub async fn promotable(&self, worker: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/trust/promotable.sql"), &[&worker]).await?.try_get(0)?)
    }
}

impl<R: Writes> Session<R> {
    pub async fn set_trust(
        &self,
        worker: &str,
        source: &str,
        producer: &str,
        trusted: bool,
        actor: Option<&str>,
    ) -> Result<TrustChange> {
        let params: [&(dyn ToSql + Sync); 5] = [&worker, &source, &producer, &trusted, &actor];
        let row = self.one(include_str!("sql/trust/set.sql"), &params).await?;
        Ok(TrustChange { changed: row.try_get(0)?, promoted: row.try_get(1)? })
    }

    /// Promotes one part of the captures, so that no batch waits long for the lock. An operator calls it without a
    /// lease.
    pub async fn promote_trusted(&self, worker: &str, lease: Option<&Lease>) -> Result<Promoted> {
        let (_, owner, term) = parts(lease);
        let params: [&(dyn ToSql + Sync); 4] = [&worker, &owner, &term, &PROMOTED_AT_ONCE];
        let row = self.one(include_str!("sql/trust/promote.sql"), &params).await?;
        let moved: i64 = row.try_get(0)?;
        Ok(Promoted { rows: row.try_get(1)?, more: moved >= i64::from(PROMOTED_AT_ONCE) })
    }
}
