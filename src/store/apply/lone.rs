//! A batch of one signal, recorded through a gate of its own. On a quiet system this is the path whose latency matters.

use super::{Advance, Applied, CursorStep, key_text};
use crate::core::captured_by::CapturedBy;
use crate::core::coalesce::Batch;
use crate::core::group::dims_json;
use crate::core::handoff::{Handoff, Standing};
use crate::core::lsn::Lsn;
use crate::core::rule::KIND_PREFIX;
use crate::error::{Error, Kind, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::{Instant, to_pg};
use tokio_postgres::types::ToSql;

/// One trusted, mapped signal of one row that needs nothing of what only the general gate does.
pub(super) struct Lone<'a> {
    signal: &'a Handoff,
    marks_object: bool,
    cursor: &'a CursorStep,
    stream: Option<(&'a str, Lsn)>,
}

impl<'a> Lone<'a> {
    pub(super) fn of(
        batch: &Batch<&'a Handoff>,
        cursors: &'a [CursorStep],
        advance: Advance<'a>,
    ) -> Option<Self> {
        let ([signal], [cursor]) = (batch.signals.as_slice(), cursors) else { return None };
        let stream = match advance {
            Advance::Nothing => None,
            Advance::Stream { slot, lsn } => Some((slot, lsn)),
            Advance::Ranges { .. } => return None,
        };
        let plain = signal.standing == Standing::Normal
            && signal.rule.version.is_some()
            && signal.scope.is_none()
            && !signal.rule.bumps_ruleset
            && (cursor.seen, cursor.signals) == (1, 1);
        plain.then(|| Self { signal, marks_object: batch.stands_for_object == [Some(true)], cursor, stream })
    }
}

impl<R: Writes> Session<R> {
    pub(super) async fn apply_one(
        &self,
        lease: &Lease,
        captured_by: CapturedBy,
        lone: &Lone<'_>,
    ) -> Result<Applied> {
        let Lone { signal: s, marks_object, cursor, stream } = lone;
        let rule = &s.rule;
        let occurred = s.occurred_at.map(Instant);
        let seen_at = cursor.watermark.as_ref().and_then(|w| w.at).map(Instant);
        let seen_id = cursor.watermark.as_ref().map(|w| key_text(&w.key));
        let (slot, lsn) = stream.map(|(slot, lsn)| (slot, to_pg(lsn))).unzip();
        let params: [&(dyn ToSql + Sync); 28] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &captured_by.name(),
            &rule.source,
            &rule.table,
            &rule.kind,
            &rule.kind.strip_prefix(KIND_PREFIX).unwrap_or(&rule.kind),
            &rule.stream,
            &rule.severity,
            &s.id,
            &s.subject,
            marks_object,
            &s.object_type,
            &s.object_ref,
            &s.canonical_address,
            &s.group.as_str(),
            &s.source_key,
            &occurred,
            &s.source_system,
            &s.actor_ref,
            &dims_json(&s.dims),
            &seen_at,
            &seen_id,
            &slot,
            &lsn,
            &rule.version,
            &s.number,
        ];
        let row = self.one(include_str!("../sql/apply/one.sql"), &params).await?;
        let counts: Vec<i64> = row.try_get(0)?;
        let [emitted, captured] = counts[..] else {
            return Err(Error::new(Kind::Internal, "the gate for a lone signal did not return two counts"));
        };
        Ok(Applied { emitted, captured })
    }
}
