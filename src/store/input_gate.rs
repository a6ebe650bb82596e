//! The input gate: candidates to look at, what was found, and the checks.

use crate::core::input_gate::{Candidate, Rejection};
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde::Serialize;
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// What is switched on, and the sources over whose candidates a walk is open.
pub struct GateControl {
    pub checks: BTreeSet<String>,
    pub walks: Vec<String>,
}

/// A walk over the candidates of a source, and how far a page of it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    pub id: i64,
    pub reached: Option<String>,
    pub ends: bool,
}

/// A check as people see it.
#[derive(Debug, Clone, Serialize)]
pub struct InputCheck {
    pub code: String,
    pub description: String,
    pub enabled: bool,
    pub changed_by: String,
    pub changed_at: String,
}

/// What the gate found about a page of candidates; `None` is `ok`.
pub type Judged = Vec<(Candidate, Option<Rejection>)>;

impl<R> Session<R> {
    pub async fn gate_control(&self) -> Result<GateControl> {
        let row =
            self.one(include_str!("sql/input_gate/control.sql"), &[]).await.context("reading the checks")?;
        let checks: Vec<String> = row.try_get("checks")?;
        Ok(GateControl { checks: checks.into_iter().collect(), walks: row.try_get("walks")? })
    }

    /// The next pending candidates of a source behind `after`.
    pub async fn pending_candidates(&self, source: &str, after: &str, limit: i64) -> Result<Vec<Candidate>> {
        let params: [&(dyn ToSql + Sync); 3] = [&source, &after, &limit];
        let rows = self.rows(include_str!("sql/input_gate/pending.sql"), &params).await?;
        Ok(rows.iter().map(candidate).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The next page of the oldest open walk of a source. `None`: none is open.
    pub async fn walk_page(&self, source: &str, limit: i64) -> Result<Option<(Walk, Vec<Candidate>)>> {
        let params: [&(dyn ToSql + Sync); 2] = [&source, &limit];
        let rows = self.rows(include_str!("sql/input_gate/walk.sql"), &params).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let walk = Walk {
            id: first.try_get("id")?,
            reached: first.try_get("reached")?,
            ends: first.try_get("ends")?,
        };
        let candidates = rows.iter().map(candidate).collect::<Result<Vec<_>>>()?;
        Ok(Some((walk, candidates.into_iter().flatten().collect())))
    }

    pub async fn input_checks(&self) -> Result<Vec<InputCheck>> {
        let rows =
            self.rows(include_str!("sql/input_gate/checks.sql"), &[]).await.context("reading the checks")?;
        rows.iter()
            .map(|row| {
                Ok(InputCheck {
                    code: row.try_get("code")?,
                    description: row.try_get("description")?,
                    enabled: row.try_get("enabled")?,
                    changed_by: row.try_get("changed_by")?,
                    changed_at: row.try_get("changed_at")?,
                })
            })
            .collect()
    }
}

fn candidate(row: &Row) -> Result<Option<Candidate>> {
    let Some(key) = row.try_get("candidate_key")? else { return Ok(None) };
    Ok(Some(Candidate {
        key,
        source: row.try_get("source_name")?,
        source_key: row.try_get("source_key")?,
        key_conflict: row.try_get("key_conflict")?,
    }))
}

impl<R: Writes> Session<R> {
    /// Records what was found. Returns for how many candidates that is new.
    pub async fn put_input(
        &self,
        lease: &Lease,
        found: &Judged,
        walk: Option<&Walk>,
        begins: bool,
        ends: bool,
    ) -> Result<i64> {
        let keys: Vec<_> = found.iter().map(|(c, _)| c.key.as_str()).collect();
        let sources: Vec<_> = found.iter().map(|(c, _)| c.source.as_deref()).collect();
        let source_keys: Vec<_> = found.iter().map(|(c, _)| c.source_key.as_deref()).collect();
        let conflicts: Vec<_> = found.iter().map(|(c, _)| c.key_conflict).collect();
        let reasons: Vec<_> = found.iter().map(|(_, why)| why.map(Rejection::code)).collect();
        let (id, reached) = (walk.map(|w| w.id), walk.and_then(|w| w.reached.as_deref()));
        let done = walk.is_some_and(|w| w.ends);
        let params: [&(dyn ToSql + Sync); 13] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &keys,
            &sources,
            &source_keys,
            &conflicts,
            &reasons,
            &id,
            &reached,
            &done,
            &begins,
            &ends,
        ];
        let row =
            self.one(include_str!("sql/input_gate/put.sql"), &params).await.context("recording checks")?;
        Ok(row.try_get(0)?)
    }

    /// Switches a check on or off. Returns whether that changed anything.
    pub async fn set_input_check(&self, code: &str, enabled: bool, actor: Option<&str>) -> Result<bool> {
        let params: [&(dyn ToSql + Sync); 3] = [&code, &enabled, &actor];
        Ok(self.one(include_str!("sql/input_gate/set.sql"), &params).await?.try_get(0)?)
    }
}
