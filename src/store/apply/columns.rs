//! A batch in the form that the gate accepts: one array for each field, and each rule once.

use super::{Advance, CursorStep, key_text};
use crate::core::coalesce::Batch;
use crate::core::group::dims_json;
use crate::core::handoff::Handoff;
use crate::core::id_ranges::Range;
use crate::core::rule::RuleFace;
use crate::store::value::Instant;
use serde_json::Value;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The rules of a batch, each once. A signal refers to its rule by position.
#[derive(Default)]
pub(super) struct Rules<'a> {
    faces: Vec<&'a Arc<RuleFace>>,
    source: Vec<&'a str>,
    table: Vec<&'a str>,
    kind: Vec<&'a str>,
    stream: Vec<&'a str>,
    severity: Vec<Option<&'a str>>,
    bumps: Vec<bool>,
}

impl<'a> Rules<'a> {
    pub fn of(batch: &'a Batch<&'a Handoff>) -> Self {
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

    /// The position of a rule in the arrays. PostgreSQL counts from one.
    fn place(&self, face: &Arc<RuleFace>) -> i32 {
        let at = self.faces.iter().position(|f| Arc::ptr_eq(f, face)).unwrap_or_default();
        i32::try_from(at + 1).unwrap_or(i32::MAX)
    }

    pub fn parameters(&self) -> [Parameter<'_>; 6] {
        [&self.source, &self.table, &self.kind, &self.stream, &self.severity, &self.bumps]
    }
}

#[derive(Default)]
pub(super) struct Signals<'a> {
    id: Vec<Uuid>,
    subject: Vec<Uuid>,
    rule: Vec<i32>,
    standing: Vec<i16>,
    /// For each signal, whether it stands for its object; see [`Batch::stands_for_object`].
    for_object: &'a [Option<bool>],
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
    pub fn of(batch: &'a Batch<&'a Handoff>, rules: &Rules<'_>) -> Self {
        let mut out = Self { for_object: &batch.stands_for_object, ..Self::default() };
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

    pub fn parameters(&self) -> [Parameter<'_>; 15] {
        [
            &self.id,
            &self.subject,
            &self.rule,
            &self.standing,
            &self.for_object,
            &self.object_type,
            &self.object_ref,
            &self.address,
            &self.group,
            &self.key,
            &self.number,
            &self.occurred,
            &self.system,
            &self.actor,
            &self.scope,
        ]
    }
}

#[derive(Default)]
pub(super) struct Groups<'a> {
    key: Vec<&'a str>,
    dims: Vec<Value>,
    latest: Vec<Option<Instant>>,
    reason: Vec<&'a str>,
    changes: Vec<i32>,
}

impl<'a> Groups<'a> {
    pub fn of(batch: &'a Batch<&'a Handoff>) -> Self {
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

    pub fn parameters(&self) -> [Parameter<'_>; 5] {
        [&self.key, &self.dims, &self.latest, &self.reason, &self.changes]
    }
}

#[derive(Default)]
pub(super) struct Cursors<'a> {
    source: Vec<&'a str>,
    at: Vec<Option<Instant>>,
    id: Vec<Option<String>>,
    seen: Vec<i64>,
    signals: Vec<i64>,
}

impl<'a> Cursors<'a> {
    pub fn of(steps: &'a [CursorStep]) -> Self {
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

    pub fn parameters(&self) -> [Parameter<'_>; 5] {
        [&self.source, &self.at, &self.id, &self.seen, &self.signals]
    }
}

#[derive(Default)]
pub(super) struct Ranges<'a> {
    source: Option<&'a str>,
    closed_lo: Vec<i64>,
    closed_hi: Vec<i64>,
    open_lo: Vec<i64>,
    open_hi: Vec<i64>,
}

impl<'a> Ranges<'a> {
    pub fn of(advance: Advance<'a>) -> Self {
        let Advance::Ranges { source, replacement } = advance else { return Self::default() };
        let split = |ranges: &[Range]| ranges.iter().map(|r| (r.lo, r.hi)).unzip();
        let (closed_lo, closed_hi) = split(&replacement.closed);
        let (open_lo, open_hi) = split(&replacement.open);
        Self { source: Some(source), closed_lo, closed_hi, open_lo, open_hi }
    }

    pub fn parameters(&self) -> [Parameter<'_>; 5] {
        [&self.source, &self.closed_lo, &self.closed_hi, &self.open_lo, &self.open_hi]
    }
}
