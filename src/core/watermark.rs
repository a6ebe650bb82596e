//! The watermark: the furthest row that was handed off, for order, lag and people. It only moves forward.
//!
//! Correctness does not depend on it (see `id_ranges` and `frontier`). A row behind the watermark is handed off like any
//! other, and the watermark stays where it is.

use crate::core::definition::IdType;
use crate::core::time::PgInstant;
use std::cmp::Ordering;
use uuid::Uuid;

/// A source row's primary key, compared as its own type compares it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Int(i64),
    Uuid(Uuid),
    Text(String),
}

impl Key {
    /// `None` if the text is not a value of the type.
    #[must_use]
    pub fn parse(id_type: IdType, text: &str) -> Option<Self> {
        match id_type {
            IdType::Int4 => text.parse::<i32>().ok().map(|id| Self::Int(id.into())),
            IdType::Int8 => text.parse().ok().map(Self::Int),
            IdType::Uuid => Uuid::parse_str(text).ok().map(Self::Uuid),
            IdType::Text => Some(Self::Text(text.to_owned())),
        }
    }

    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(id) = self { Some(*id) } else { None }
    }
}

impl std::fmt::Display for Key {
    /// As the server renders it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(id) => id.fmt(f),
            Self::Uuid(id) => id.fmt(f),
            Self::Text(id) => id.fmt(f),
        }
    }
}

/// The greatest `(order key, id)` of what was handed off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    pub at: Option<PgInstant>,
    pub key: Key,
}

impl PartialOrd for Watermark {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Watermark {
    /// A row without an order key sorts before every row that has one.
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at).then_with(|| self.key.cmp(&other.key))
    }
}

/// Moves `current` to `seen` if that is forward. True if it moved.
pub fn advance(current: &mut Option<Watermark>, seen: Watermark) -> bool {
    let ahead = current.as_ref().is_none_or(|c| seen > *c);
    if ahead {
        *current = Some(seen);
    }
    ahead
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_compare_as_numbers() {
        assert!(Key::parse(IdType::Int4, "9") < Key::parse(IdType::Int4, "10"));
        assert!(Key::parse(IdType::Text, "9") > Key::parse(IdType::Text, "10"));
        assert_eq!(Key::parse(IdType::Int4, "2147483648"), None);
    }

    proptest! {
        #[test]
        fn it_is_monotone_and_the_same_under_any_interleaving(rows in prop::collection::vec((prop::option::of(-5i64..5), -5i64..5), 1..40)) {
            let marks: Vec<_> = rows.iter()
                .map(|(at, id)| Watermark { at: at.map(PgInstant::from_pg_micros), key: Key::Int(*id) }).collect();
            let mut current = None;
            for mark in &marks {
                let before = current.clone();
                advance(&mut current, mark.clone());
                prop_assert!(current >= before);
            }
            prop_assert_eq!(current.as_ref(), marks.iter().max());
            let mut reversed = None;
            for mark in marks.iter().rev() {
                advance(&mut reversed, mark.clone());
            }
            prop_assert_eq!(current, reversed);
        }
    }
}
