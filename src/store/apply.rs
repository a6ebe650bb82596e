//! Recording a batch: one statement, one round trip, one commit.
//!
//! The gate does everything or nothing: signals, captures, marks, ranges, cursors, the stream's position, and the fence.
//! So whoever sees this return `Ok` may acknowledge, and nobody may before.

use crate::core::coalesce::Batch;
use crate::core::gap::{Range, Replacement};
use crate::core::group::dims_json;
use crate::core::handoff::Handoff;
use crate::core::lsn::Lsn;
use crate::core::rule::RuleFace;
use crate::core::watermark::{Key, Watermark};
use crate::error::Result;
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::{Instant, to_pg};
use lone::Lone;
use serde_json::Value;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

mod lone;

/// How one source's cursor moves with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorStep {
    pub source: String,
    pub watermark: Option<Watermark>,
    pub seen: i64,
    pub signals: i64,
}

/// Where the batch moves the reader to.
#[derive(Debug, Clone, Copy)]
pub enum Advance<'a> {
    /// Nowhere: a part of a transaction, or a replay.
    Nothing,
    /// These ids of this source are seen.
    Ranges { source: &'a str, replacement: &'a Replacement },
    /// The slot's transactions up to here are whole.
    Stream { slot: &'a str, lsn: Lsn },
}

/// What was new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    pub emitted: i64,
    pub captured: i64,
}

impl<R> Session<R> {
    /// Those of `ids` that are neither in the outbox nor captured.
    pub async fn unrecorded(&self, ids: &[Uuid]) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/apply/unrecorded.sql"), &[&ids]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl<R: Writes> Session<R> {
    pub async fn apply(
        &self,
        lease: &Lease,
        captured_by: &str,
        batch: &Batch<&Handoff>,
        cursors: &[CursorStep],
        advance: Advance<'_>,
        versions: &[Uuid],
    ) -> Result<Applied> {
        if let Some(lone) = Lone::of(batch, cursors, advance) {
            return self.apply_one(lease, captured_by, &lone).await;
        }
        let rules = Rules::of(batch);
        let s = Signals::of(batch, &rules);
        let g = Groups::of(batch);
        let c = Cursors::of(cursors);
        let x = Ranges::of(advance);
        let (l_slot, l_lsn) = match advance {
            Advance::Stream { slot, lsn } => (Some(slot), Some(to_pg(lsn))),
            Advance::Nothing | Advance::Ranges { .. } => (None, None),
        };
        let r = &rules;
        let params: [&(dyn ToSql + Sync); 43] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &captured_by,
            &r.source,
            &r.table,
            &r.kind,
            &r.stream,
            &r.severity,
            &r.bumps,
            &s.id,
            &s.subject,
            &s.rule,
            &s.standing,
            &batch.stands_for_object,
            &s.object_type,
            &s.object_ref,
            &s.address,
            &s.group,
            &s.key,
            &s.occurred,
            &s.system,
            &s.actor,
            &s.scope,
            &g.key,
            &g.dims,
            &g.latest,
            &g.reason,
            &g.changes,
            &c.source,
            &c.at,
            &c.id,
            &c.seen,
            &c.signals,
            &x.source,
            &x.closed_lo,
            &x.closed_hi,
            &x.open_lo,
            &x.open_hi,
            &l_slot,
            &l_lsn,
            &versions,
            &s.number,
        ];
        let row = self.one(include_str!("sql/apply/batch.sql"), &params).await?;
        Ok(Applied { emitted: row.try_get(0)?, captured: row.try_get(1)? })
    }

    /// Goes through everything that the gates write, without a row: fails where they cannot work whatever the rows.
    pub async fn probe_gates(&self) -> Result<()> {
        self.one(include_str!("sql/apply/probe.sql"), &[]).await?;
        Ok(())
    }
}

/// The rules met in a batch, once each; signals refer to them by place.
#[derive(Default)]
struct Rules<'a> {
    faces: Vec<&'a Arc<RuleFace>>,
    source: Vec<&'a str>,
    table: Vec<&'a str>,
    kind: Vec<&'a str>,
    stream: Vec<&'a str>,
    severity: Vec<Option<&'a str>>,
    bumps: Vec<bool>,
}

impl<'a> Rules<'a> {
    fn of(batch: &'a Batch<&'a Handoff>) -> Self {
        let mut out = Self::default();
        for signal in &batch.signals {
            let face = &signal.rule;
            if out.faces.iter().any(|f| Arc::ptr_eq(f, face)) {
                continue;
            }
            out.faces.push(face);
            out.source.push(&face.source);
            out.table.push(&face.table);
            out.kind.push(&face.kind);
            out.stream.push(&face.stream);
            out.severity.push(face.severity.as_deref());
            out.bumps.push(face.bumps_ruleset);
        }
        out
    }

    /// PostgreSQL counts from one.
    fn place(&self, face: &Arc<RuleFace>) -> i32 {
        let at = self.faces.iter().position(|f| Arc::ptr_eq(f, face)).unwrap_or_default();
        i32::try_from(at + 1).unwrap_or(i32::MAX)
    }
}

#[derive(Default)]
struct Signals<'a> {
    id: Vec<Uuid>,
    subject: Vec<Uuid>,
    rule: Vec<i32>,
    standing: Vec<i16>,
    object_type: Vec<&'a str>,
    object_ref: Vec<&'a str>,
    address: Vec<&'a str>,
    group: Vec<&'a str>,
    key: Vec<&'a str>,
    number: Vec<Option<i64>>,
    occurred: Vec<Option<Instant>>,
    system: Vec<&'a str>,
    actor: Vec<&'a str>,
    scope: Vec<Option<Value>>,
}

impl<'a> Signals<'a> {
    fn of(batch: &'a Batch<&'a Handoff>, rules: &Rules<'_>) -> Self {
        let mut out = Self::default();
        for s in &batch.signals {
            out.id.push(s.id);
            out.subject.push(s.subject);
            out.rule.push(rules.place(&s.rule));
            out.standing.push(s.standing as i16);
            out.object_type.push(&s.object_type);
            out.object_ref.push(&s.object_ref);
            out.address.push(&s.canonical_address);
            out.group.push(s.group.as_str());
            out.key.push(&s.source_key);
            out.number.push(s.number);
            out.occurred.push(s.occurred_at.map(Instant));
            out.system.push(&s.source_system);
            out.actor.push(&s.actor_ref);
            out.scope.push(s.scope.as_deref().map(dims_json));
        }
        out
    }
}

#[derive(Default)]
struct Groups<'a> {
    key: Vec<&'a str>,
    dims: Vec<Value>,
    latest: Vec<Option<Instant>>,
    reason: Vec<&'a str>,
    changes: Vec<i32>,
}

impl<'a> Groups<'a> {
    fn of(batch: &'a Batch<&'a Handoff>) -> Self {
        let mut out = Self::default();
        for (key, mark) in &batch.groups {
            out.key.push(key);
            out.dims.push(dims_json(&mark.dims));
            out.latest.push(mark.latest.map(Instant));
            out.reason.push(&mark.reason);
            out.changes.push(mark.changes);
        }
        out
    }
}

#[derive(Default)]
struct Cursors<'a> {
    source: Vec<&'a str>,
    at: Vec<Option<Instant>>,
    id: Vec<Option<String>>,
    seen: Vec<i64>,
    signals: Vec<i64>,
}

impl<'a> Cursors<'a> {
    fn of(steps: &'a [CursorStep]) -> Self {
        let mut out = Self::default();
        for step in steps {
            out.source.push(&step.source);
            out.at.push(step.watermark.as_ref().and_then(|w| w.at).map(Instant));
            out.id.push(step.watermark.as_ref().map(|w| key_text(&w.key)));
            out.seen.push(step.seen);
            out.signals.push(step.signals);
        }
        out
    }
}

#[derive(Default)]
struct Ranges<'a> {
    source: Option<&'a str>,
    closed_lo: Vec<i64>,
    closed_hi: Vec<i64>,
    open_lo: Vec<i64>,
    open_hi: Vec<i64>,
}

impl<'a> Ranges<'a> {
    fn of(advance: Advance<'a>) -> Self {
        let Advance::Ranges { source, replacement } = advance else { return Self::default() };
        let split = |ranges: &[Range]| ranges.iter().map(|r| (r.lo, r.hi)).unzip();
        let (closed_lo, closed_hi) = split(&replacement.closed);
        let (open_lo, open_hi) = split(&replacement.open);
        Self { source: Some(source), closed_lo, closed_hi, open_lo, open_hi }
    }
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Int(id) => id.to_string(),
        Key::Uuid(id) => id.to_string(),
        Key::Text(id) => id.clone(),
    }
}
