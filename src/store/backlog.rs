//! The backlog of a source: what was decided about it, which rows are in it, and the pages of the sweep that seeds it.

use crate::core::definition::Backlog;
use crate::core::group::dims_json;
use crate::core::handoff::{Handoff, Source};
use crate::core::sweep::SweepPhase;
use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::Instant;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// What was decided about the backlog of a source when it was first registered, and how far its sweep is.
#[derive(Debug, Clone, Serialize)]
pub struct Decided {
    pub source: String,
    pub policy: Backlog,
    pub rows: i64,
    /// When the snapshot was taken; `None` for a source that was registered before there were boundaries.
    pub taken_at: Option<String>,
    pub snapshot: Option<String>,
    pub lsn: Option<String>,
    pub digest: Option<String>,
    pub decided_by: String,
    pub decided_at: String,
    /// `None` if there is nothing to seed.
    pub phase: Option<SweepPhase>,
    pub rows_read: Option<i64>,
    pub candidates: Option<i64>,
}

fn policy(name: &str) -> Result<Backlog> {
    name.parse().map_err(|problem| Error::new(Kind::Internal, format!("policy of a backlog: {problem}")))
}

/// By what the backlog knows a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacklogKey {
    Number(i64),
    Subject(Uuid),
}

/// A backlog that is seeded, and the place of its sweep.
#[derive(Debug, Clone)]
pub struct BacklogSweep {
    pub source: String,
    pub boundary: Uuid,
    pub rows: i64,
    pub place: Option<Value>,
}

/// How many rows a backlog holds, and between which ids.
#[derive(Debug, Clone, Copy, Default)]
pub struct Held {
    pub rows: i64,
    pub ids: Option<(i64, i64)>,
}

/// One page of the sweep, as the gate commits it.
pub struct SweepPage<'a> {
    pub source: &'a Source,
    pub boundary: Uuid,
    pub phase: &'a str,
    pub place: &'a Value,
    /// Mark only what has no candidate or no group.
    pub missing_only: bool,
    pub rows: i64,
    pub refused: i64,
    pub begins: bool,
    pub ends: bool,
    pub certificate: Option<Value>,
    /// The handoffs that mark an object.
    pub marks: &'a [&'a Handoff],
}

impl<R> Session<R> {
    /// What was decided about each source's backlog.
    pub async fn backlogs(&self) -> Result<Vec<Decided>> {
        let rows = self.rows(include_str!("sql/backlog/shown.sql"), &[]).await;
        rows.context("reading the boundaries of the sources")?
            .iter()
            .map(|row| {
                Ok(Decided {
                    source: row.try_get("source_name")?,
                    policy: policy(row.try_get("policy")?)?,
                    rows: row.try_get("row_count")?,
                    taken_at: row.try_get("taken_at")?,
                    snapshot: row.try_get("snapshot")?,
                    lsn: row.try_get("lsn")?,
                    digest: row.try_get("digest")?,
                    decided_by: row.try_get("decided_by")?,
                    decided_at: row.try_get("decided_at")?,
                    phase: row.try_get::<_, Option<&str>>("phase")?.and_then(SweepPhase::of),
                    rows_read: row.try_get("rows_read")?,
                    candidates: row.try_get("candidates")?,
                })
            })
            .collect()
    }

    /// The positions of those of `keys` whose rows are in the backlog of the source.
    pub async fn in_backlog(&self, source: &str, keys: &[Option<BacklogKey>]) -> Result<HashSet<usize>> {
        let row = self.optional(include_str!("sql/backlog/in_force.sql"), &[&source]).await?;
        match row {
            Some(row) => self.in_boundary(row.try_get(0)?, keys).await,
            None => Ok(HashSet::new()),
        }
    }

    /// As [`in_backlog`](Self::in_backlog), for a boundary that is known to be in force.
    pub async fn in_boundary(&self, boundary: Uuid, keys: &[Option<BacklogKey>]) -> Result<HashSet<usize>> {
        let (mut numbers, mut subjects) = (Vec::new(), Vec::new());
        for key in keys.iter().flatten() {
            match key {
                BacklogKey::Number(number) => numbers.push(*number),
                BacklogKey::Subject(subject) => subjects.push(*subject),
            }
        }
        let ranges = match (numbers.iter().min(), numbers.iter().max()) {
            (Some(least), Some(most)) => self.backlog_ranges(boundary, *least, *most).await?,
            _ => Vec::new(),
        };
        let subjects: HashSet<Uuid> = if subjects.is_empty() {
            HashSet::new()
        } else {
            let rows = self.rows(include_str!("sql/backlog/subjects.sql"), &[&boundary, &subjects]).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?
        };
        let is_held = |key: &BacklogKey| match key {
            BacklogKey::Number(n) => {
                let at = ranges.partition_point(|(_, hi)| hi < n);
                ranges.get(at).is_some_and(|(lo, _)| lo <= n)
            }
            BacklogKey::Subject(subject) => subjects.contains(subject),
        };
        let held = |(i, key): (usize, &Option<BacklogKey>)| key.as_ref().is_some_and(is_held).then_some(i);
        Ok(keys.iter().enumerate().filter_map(held).collect())
    }

    async fn backlog_ranges(&self, boundary: Uuid, least: i64, most: i64) -> Result<Vec<(i64, i64)>> {
        let params: [&(dyn ToSql + Sync); 3] = [&boundary, &least, &most];
        let rows = self.rows(include_str!("sql/backlog/ranges.sql"), &params).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// The backlogs that `worker` seeds or has seeded.
    pub async fn sweeps(&self, worker: &str) -> Result<Vec<BacklogSweep>> {
        let rows = self.rows(include_str!("sql/backlog/sweeps.sql"), &[&worker]).await;
        rows.context("reading the backlogs")?
            .iter()
            .map(|row| {
                Ok(BacklogSweep {
                    source: row.try_get("source_name")?,
                    boundary: row.try_get("boundary")?,
                    rows: row.try_get("row_count")?,
                    place: row.try_get("place")?,
                })
            })
            .collect()
    }

    pub async fn backlog_held(&self, boundary: Uuid) -> Result<Held> {
        let row = self.one(include_str!("sql/backlog/held.sql"), &[&boundary]).await?;
        let ids: (Option<i64>, Option<i64>) = (row.try_get("lowest")?, row.try_get("highest")?);
        Ok(Held { rows: row.try_get("held")?, ids: ids.0.zip(ids.1) })
    }
}

impl<R: Writes> Session<R> {
    /// Commits one page of the sweep. Returns how many objects had no candidate before.
    pub async fn sweep_page(&self, lease: &Lease, page: &SweepPage<'_>) -> Result<i64> {
        let source = page.source.name();
        let texts = |of: fn(&Handoff) -> &str| page.marks.iter().map(|h| of(h)).collect::<Vec<_>>();
        let (keys, kinds) = (texts(|h| &h.source_key), texts(|h| &h.rule.kind));
        let (types, addresses) = (texts(|h| &h.object_type), texts(|h| &h.canonical_address));
        let groups = texts(|h| h.group.as_str());
        let dims: Vec<_> = page.marks.iter().map(|h| dims_json(&h.dims)).collect();
        let occurred: Vec<_> = page.marks.iter().map(|h| h.occurred_at.map(Instant)).collect();
        let params: [&(dyn ToSql + Sync); 21] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &source,
            &page.boundary,
            &page.phase,
            page.place,
            &page.missing_only,
            &page.rows,
            &page.refused,
            &page.begins,
            &page.ends,
            &page.certificate,
            &page.source.version,
            &keys,
            &kinds,
            &types,
            &addresses,
            &groups,
            &dims,
            &occurred,
        ];
        let row = self.one(include_str!("sql/backlog/page.sql"), &params).await;
        Ok(row.context("committing a page of the backlog")?.try_get(0)?)
    }
}
