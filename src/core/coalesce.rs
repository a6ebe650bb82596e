//! Many changes of one group are one mark: the latest occurrence wins, the count is kept.

use crate::core::definition::Grain;
use crate::core::handoff::{Handoff, Standing};
use crate::core::time::PgInstant;
use std::collections::{BTreeMap, HashMap};

/// One group that a batch dirties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMark {
    pub dims: Vec<(String, Option<String>)>,
    pub latest: Option<PgInstant>,
    pub reason: String,
    pub changes: i32,
}

/// What one apply is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Sorted by identity, each once. The order keeps two writers of the same rows from deadlocking.
    pub signals: Vec<Handoff>,
    /// `Some(true)` for the one signal that stands for its object, `Some(false)` for earlier ones of the same object,
    /// `None` for a signal that marks no object.
    pub stands_for_object: Vec<Option<bool>>,
    pub groups: BTreeMap<String, GroupMark>,
}

/// Folds handoffs into a batch. Folding a batch's own signals again gives the same batch.
#[must_use]
pub fn coalesce(mut signals: Vec<Handoff>) -> Batch {
    signals.sort_unstable_by_key(|s| s.id);
    signals.dedup_by_key(|s| s.id);
    let mut groups: BTreeMap<String, GroupMark> = BTreeMap::new();
    let mut objects: HashMap<&str, usize> = HashMap::new();
    for (i, signal) in signals.iter().enumerate() {
        if signal.standing != Standing::Normal {
            continue;
        }
        groups.entry(signal.group.as_str().to_owned()).and_modify(|mark| mark.absorb(signal)).or_insert_with(
            || GroupMark {
                dims: signal.dims.clone(),
                latest: signal.occurred_at,
                reason: signal.rule.kind.clone(),
                changes: 1,
            },
        );
        if signal.rule.grain == Grain::Object {
            let latest = objects.entry(&signal.canonical_address).or_insert(i);
            if signal.occurred_at >= signals[*latest].occurred_at {
                *latest = i;
            }
        }
    }
    let stands_for_object = signals
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let marks = s.standing == Standing::Normal && s.rule.grain == Grain::Object;
            marks.then(|| objects.get(s.canonical_address.as_str()) == Some(&i))
        })
        .collect();
    Batch { signals, stands_for_object, groups }
}

impl GroupMark {
    fn absorb(&mut self, signal: &Handoff) {
        self.changes += 1;
        if signal.occurred_at >= self.latest {
            self.latest = signal.occurred_at;
            self.reason.clone_from(&signal.rule.kind);
        }
    }
}

#[cfg(test)]
mod tests;
