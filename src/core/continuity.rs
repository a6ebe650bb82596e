//! Whether a slot continues where the daemon stopped.
//!
//! If the start position is older than the slot, the server silently starts at the slot's position. So the daemon has
//! to compare. A gap is not a loss: the reconciler reads the tables themselves. The stream only cannot prove that part.

use crate::core::lsn::Lsn;

/// The position that the daemon has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub system_identifier: String,
    pub timeline: i32,
    pub durable: Lsn,
}

/// The position that the server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    pub system_identifier: String,
    pub timeline: i32,
    /// The slot delivers nothing before this position.
    pub confirmed: Lsn,
    /// The end of the server's log.
    pub end: Lsn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Continuity {
    Resume(Lsn),
    /// A slot without a recorded position: the reconciler covers everything before it.
    First(Lsn),
    Gap {
        start: Lsn,
        reason: String,
    },
}

impl Continuity {
    /// Where to start: not after the recorded position, unless the slot has nothing older.
    #[must_use]
    pub fn start(&self) -> Lsn {
        match self {
            Self::Resume(lsn) | Self::First(lsn) | Self::Gap { start: lsn, .. } => *lsn,
        }
    }
}

#[must_use]
pub fn compare(ours: Option<&Position>, theirs: &Offered) -> Continuity {
    let start = theirs.confirmed;
    let Some(ours) = ours else { return Continuity::First(start) };
    if ours.system_identifier != theirs.system_identifier {
        let reason = format!(
            "another server: system identifier {}, expected {}",
            theirs.system_identifier, ours.system_identifier
        );
        return Continuity::Gap { start, reason };
    }
    if ours.timeline != theirs.timeline {
        let reason = format!("another timeline: {}, expected {}", theirs.timeline, ours.timeline);
        return Continuity::Gap { start, reason };
    }
    if theirs.confirmed > ours.durable {
        let reason = format!("the slot is at {}, ahead of what we have, {}", theirs.confirmed, ours.durable);
        return Continuity::Gap { start, reason };
    }
    // Nothing can be durable that the server has not written. Starting there would acknowledge rows that are still to come.
    if ours.durable > theirs.end {
        let reason = format!("we have {}, but the server's log ends at {}", ours.durable, theirs.end);
        return Continuity::Gap { start, reason };
    }
    Continuity::Resume(ours.durable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(durable: u64) -> Position {
        Position { system_identifier: "1".into(), timeline: 1, durable: durable.into() }
    }

    fn theirs(system: &str, timeline: i32, confirmed: u64) -> Offered {
        Offered { system_identifier: system.into(), timeline, confirmed: confirmed.into(), end: 40.into() }
    }

    #[test]
    fn a_slot_behind_us_resumes_from_what_is_durable() {
        assert_eq!(compare(Some(&ours(20)), &theirs("1", 1, 10)), Continuity::Resume(20.into()));
        assert_eq!(compare(Some(&ours(20)), &theirs("1", 1, 20)), Continuity::Resume(20.into()));
    }

    #[test]
    fn whatever_else_is_a_gap_that_starts_where_the_slot_is() {
        for offered in [theirs("1", 1, 30), theirs("2", 1, 10), theirs("1", 2, 10)] {
            let found = compare(Some(&ours(20)), &offered);
            assert!(matches!(found, Continuity::Gap { .. }), "{found:?}");
            assert_eq!(found.start(), offered.confirmed);
        }
        assert_eq!(compare(None, &theirs("1", 1, 5)), Continuity::First(5.into()));
    }

    #[test]
    fn a_position_beyond_the_end_of_the_log_is_not_believed() {
        let found = compare(Some(&ours(41)), &theirs("1", 1, 10));
        assert!(matches!(&found, Continuity::Gap { start, .. } if *start == 10.into()), "{found:?}");
        assert_eq!(compare(Some(&ours(40)), &theirs("1", 1, 10)), Continuity::Resume(40.into()));
    }
}
