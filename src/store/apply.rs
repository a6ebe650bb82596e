//! Recording a batch: one statement, one round trip, one commit.
//!
//! The gate writes everything or nothing: signals, captures, marks, ranges, cursors, the stream's position, and it
//! checks the fence. A caller may acknowledge the batch after `apply` returned `Ok`, and not before.

use crate::core::captured_by::CapturedBy;
use crate::core::coalesce::Batch;
use crate::core::handoff::Handoff;
use crate::core::id_ranges::Replacement;
use crate::core::lsn::Lsn;
use crate::core::watermark::{Key, Watermark};
use crate::error::Result;
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::to_pg;
use columns::{Cursors, Groups, Parameter, Ranges, Rules, Signals};
use lone::Lone;
use uuid::Uuid;

mod columns;
mod lone;

/// How one source's cursor moves with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorStep {
    pub source: String,
    pub watermark: Option<Watermark>,
    pub seen: i64,
    pub signals: i64,
}

/// Which read position moves with the batch.
#[derive(Debug, Clone, Copy)]
pub enum Advance<'a> {
    /// None moves: the batch is a part of a transaction, or a replay.
    Nothing,
    /// These ids of this source were read and leave the open ranges.
    Ranges { source: &'a str, replacement: &'a Replacement },
    /// Every transaction of the slot up to this position is handed off completely.
    Stream { slot: &'a str, lsn: Lsn },
}

/// How many signals of the batch were not recorded before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    pub emitted: i64,
    pub captured: i64,
}

impl<R> Session<R> {
    /// Returns those of `ids` that are neither in the outbox nor captured.
    pub async fn unrecorded(&self, ids: &[Uuid]) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/apply/unrecorded.sql"), &[&ids]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl<R: Writes> Session<R> {
    pub async fn apply(
        &self,
        lease: &Lease,
        captured_by: CapturedBy,
        batch: &Batch<&Handoff>,
        cursors: &[CursorStep],
        advance: Advance<'_>,
        versions: &[Uuid],
    ) -> Result<Applied> {
        if let Some(lone) = Lone::of(batch, cursors, advance) {
            return self.apply_one(lease, captured_by, &lone).await;
        }
        let rules = Rules::of(batch);
        let signals = Signals::of(batch, &rules);
        let (groups, cursors, ranges) = (Groups::of(batch), Cursors::of(cursors), Ranges::of(advance));
        let (slot, lsn) = match advance {
            Advance::Stream { slot, lsn } => (Some(slot), Some(to_pg(lsn))),
            Advance::Nothing | Advance::Ranges { .. } => (None, None),
        };
        let lease: [Parameter<'_>; 4] = [&lease.worker, &lease.owner, &lease.term, &captured_by.name()];
        let ends: [Parameter<'_>; 3] = [&slot, &lsn, &versions];
        // The parameters stand in the order of their numbers in the statement, which names each of them.
        let params = [
            &lease[..],
            &rules.parameters(),
            &signals.parameters(),
            &groups.parameters(),
            &cursors.parameters(),
            &ranges.parameters(),
            &ends,
        ]
        .concat();
        let row = self.one(include_str!("sql/apply/batch.sql"), &params).await?;
        Ok(Applied { emitted: row.try_get(0)?, captured: row.try_get(1)? })
    }

    /// Exercises everything that the gates write to, without a row. An error means that the gates cannot work for any
    /// row.
    pub async fn probe_gates(&self) -> Result<()> {
        self.one(include_str!("sql/apply/probe.sql"), &[]).await?;
        Ok(())
    }
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Int(id) => id.to_string(),
        Key::Uuid(id) => id.to_string(),
        Key::Text(id) => id.clone(),
    }
}
