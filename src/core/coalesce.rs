//! Coalescing: many changes of one group become one mark, with the latest time and the number of changes.

use crate::core::definition::Grain;
use crate::core::handoff::{Handoff, Standing};
use crate::core::time::PgInstant;
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};

/// The mark of one group in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMark {
    pub dims: Vec<(String, Option<String>)>,
    pub latest: Option<PgInstant>,
    pub reason: String,
    pub changes: i32,
}

/// The input of one `apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<H = Handoff> {
    /// Sorted by identity, without duplicates. The order prevents a deadlock of two writers of the same rows.
    pub signals: Vec<H>,
    /// `Some(true)` for the latest signal of its object, `Some(false)` for earlier ones, `None` for a signal that marks
    /// no object.
    pub stands_for_object: Vec<Option<bool>>,
    pub groups: BTreeMap<String, GroupMark>,
}

impl<H> Default for Batch<H> {
    fn default() -> Self {
        Self { signals: Vec::new(), stands_for_object: Vec::new(), groups: BTreeMap::new() }
    }
}

/// Combines handoffs, owned or borrowed, into a batch. Coalescing the signals of a batch again gives the same batch.
#[must_use]
pub fn coalesce<H: Borrow<Handoff>>(mut signals: Vec<H>) -> Batch<H> {
    signals.sort_unstable_by_key(|s| s.borrow().id);
    signals.dedup_by(|a, b| (*a).borrow().id == (*b).borrow().id);
    let mut groups: BTreeMap<String, GroupMark> = BTreeMap::new();
    let mut objects: HashMap<&str, usize> = HashMap::new();
    for (i, signal) in signals.iter().map(Borrow::borrow).enumerate() {
        if signal.standing != Standing::Normal {
            continue;
        }
        match groups.get_mut(signal.group.as_str()) {
            Some(mark) => mark.absorb(signal),
            None => {
                groups.insert(signal.group.as_str().to_owned(), GroupMark::first(signal));
            }
        }
        if signal.rule.grain == Grain::Object {
            let latest = objects.entry(&signal.canonical_address).or_insert(i);
            if signal.occurred_at >= signals[*latest].borrow().occurred_at {
                *latest = i;
            }
        }
    }
    let stands_for_object = signals
        .iter()
        .map(Borrow::borrow)
        .enumerate()
        .map(|(i, s): (usize, &Handoff)| {
            let marks = s.standing == Standing::Normal && s.rule.grain == Grain::Object;
            marks.then(|| objects.get(s.canonical_address.as_str()) == Some(&i))
        })
        .collect();
    Batch { signals, stands_for_object, groups }
}

impl GroupMark {
    fn first(signal: &Handoff) -> Self {
        Self {
            dims: signal.dims.clone(),
            latest: signal.occurred_at,
            reason: signal.rule.kind.clone(),
            changes: 1,
        }
    }

    fn absorb(&mut self, signal: &Handoff) {
        self.changes += 1;
        // The kind decides between changes of the same time, here as in the gates: the order of delivery must not.
        if (signal.occurred_at, &signal.rule.kind) > (self.latest, &self.reason) {
            self.latest = signal.occurred_at;
            self.reason.clone_from(&signal.rule.kind);
        }
    }
}

#[cfg(test)]
mod tests;
