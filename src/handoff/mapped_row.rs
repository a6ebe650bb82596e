//! A row with the handoffs that it maps to. Every path makes them here, so all paths map alike.

use crate::core::handoff::{Handoff, Mapped, Source};
use crate::core::row::Row;
use crate::core::watermark::{Key, Watermark};
use crate::store::backlog::BacklogKey;
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;

/// A row and its handoffs. Mapping is most of the client's work for a row, and is done while an earlier batch
/// commits.
pub struct MappedRow {
    pub source: Arc<Source>,
    pub(super) key: String,
    pub watermark: Option<Watermark>,
    pub(super) mapped: Mapped,
    /// Some of its signals are recorded already. A row is handed off whole, so the missing ones became due later: by
    /// another rule, or because the row was changed.
    pub partly: bool,
    /// Its key was another row's, which was handed off. This row has identities of its own.
    pub replaced: bool,
}

impl MappedRow {
    pub fn of(source: Arc<Source>, row: &Row) -> Self {
        Self {
            key: source.key(row).to_owned(),
            watermark: source.watermark(row),
            mapped: source.map(row),
            partly: false,
            replaced: false,
            source,
        }
    }

    /// The signals that the row should have, each with the number by which retention remembers it. A row that cannot
    /// be handed off has none: only its dead letter accounts for it, under an identity that no signal has. The same
    /// holds for a row that cannot be read, although signals of its key may be recorded: they may belong to another
    /// row that had the key before.
    pub fn expected(&self) -> Vec<(Uuid, Option<i64>)> {
        match &self.mapped {
            Mapped::Handoffs(handoffs) => handoffs.iter().map(|h| (h.id, h.number)).collect(),
            Mapped::Excluded => vec![],
            Mapped::Refused(refusal) => vec![(refusal.subject, None)],
        }
    }

    /// By what the backlog of its source would know the row. A row that took the key of another row is not in it.
    pub fn backlog_key(&self) -> Option<BacklogKey> {
        if self.replaced {
            return None;
        }
        let number = Key::parse(self.source.id_type(), &self.key).and_then(|key| key.as_int());
        Some(match number {
            Some(number) => BacklogKey::Number(number),
            None => BacklogKey::Subject(self.source.identity.subject(&self.key)),
        })
    }

    /// Whether its signals count for a digest.
    pub fn is_handed_off(&self) -> bool {
        matches!(self.mapped, Mapped::Handoffs(_))
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// The row cannot be handed off.
    pub fn is_refused(&self) -> bool {
        matches!(self.mapped, Mapped::Refused(_))
    }

    pub fn handoffs(&self) -> &[Handoff] {
        if let Mapped::Handoffs(handoffs) = &self.mapped { handoffs } else { &[] }
    }

    /// Gives the signals that are recorded for another row an identity of their own.
    pub(super) fn replace(&mut self, taken: &HashSet<Uuid>) {
        let Mapped::Handoffs(handoffs) = &mut self.mapped else { return };
        for handoff in handoffs.iter_mut().filter(|h| taken.contains(&h.id)) {
            handoff.replace(&self.source.identity);
            self.replaced = true;
        }
    }

    /// Leaves out every signal but these. A signal that is delivered again is absorbed if it is recorded, but not if
    /// it was retired.
    #[must_use]
    pub fn only(mut self, missing: &HashSet<Uuid>) -> Self {
        if let Mapped::Handoffs(handoffs) = &mut self.mapped {
            let all = handoffs.len();
            handoffs.retain(|handoff| missing.contains(&handoff.id));
            self.partly |= handoffs.len() < all;
        }
        self
    }
}
