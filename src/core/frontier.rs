//! When a recorded frontier may still be used to select rows by age.
//!
//! A row's `xmin` is 32 bits wide and compares modulo 2^32, so a frontier is only good while everything newer than it is
//! less than half of that away. Beyond, on another server, in another relation, or on the first run, the whole table is
//! compared instead; that is slower and never wrong.

use serde::Serialize;

/// Well below 2^31: passes must stop trusting ages long before the server itself would.
const FARTHEST: u64 = 1_500_000_000;

/// Why a frontier does not say which rows are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distrust {
    /// There is none yet.
    First,
    AnotherServer,
    /// The table was swapped, restored, emptied or rewritten: old transactions may have written rows that are new here.
    AnotherTable,
    /// Too old to compare ages with, or no snapshot's at all.
    OutOfReach,
}

/// The transactions that began at or after a frontier and before a snapshot's end. Rows carry the lower half of a
/// transaction's id, so that is what is compared, and the window may run over its end. It is less than half of all ids wide
/// (`distrust`), so each id of it is in it once. A frozen row keeps the id it was written with, and may one day look as if it
/// lay in the window: it is compared once more and found recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub first: u32,
    /// The first one that is not in it any more.
    pub end: u32,
}

impl Window {
    /// Everything that a snapshot shows was written before `next`, so nothing that is new lies beyond.
    #[must_use]
    pub fn new(frontier: u64, next: u64) -> Self {
        Self { first: lower_half(frontier), end: lower_half(next) }
    }

    #[must_use]
    pub fn width(self) -> u32 {
        self.end.wrapping_sub(self.first)
    }

    /// Every id of it.
    pub fn ids(self) -> impl Iterator<Item = u32> {
        (0..self.width()).map(move |i| self.first.wrapping_add(i))
    }

    /// It begins before the largest id and ends after the smallest.
    #[must_use]
    pub fn wraps(self) -> bool {
        self.end < self.first
    }
}

fn lower_half(id: u64) -> u32 {
    (id & u64::from(u32::MAX)) as u32
}

/// What keeps rows from being selected by `frontier`, seen from a snapshot whose next transaction is `next`.
#[must_use]
pub fn distrust(frontier: u64, next: u64, same_server: bool, same_table: bool) -> Option<Distrust> {
    // The first ids are reserved by the server (bootstrap, frozen); a frontier among them was never a snapshot's.
    let in_reach = frontier >= 3 && frontier <= next && next - frontier < FARTHEST;
    match (same_server, in_reach, same_table) {
        (false, ..) => Some(Distrust::AnotherServer),
        (_, false, _) => Some(Distrust::OutOfReach),
        (.., false) => Some(Distrust::AnotherTable),
        (true, true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the statement compares (`store::frontier::written_in`).
    fn selects(window: Window, xmin: u32) -> bool {
        let (from, before) = (xmin >= window.first, xmin < window.end);
        if window.wraps() { from || before } else { from && before }
    }

    proptest! {
        #[test]
        fn a_window_selects_every_transaction_since_the_frontier_and_none_of_the_same_age_before(
            frontier in 3..u64::MAX / 2, width in 0..FARTHEST, at in 0..FARTHEST, before in 1..(1_u64 << 31),
        ) {
            let next = frontier + width;
            prop_assert!(distrust(frontier, next, true, true).is_none());
            let window = Window::new(frontier, next);
            if width > 0 {
                prop_assert!(selects(window, lower_half(frontier + at % width)));
            }
            prop_assert!(!selects(window, lower_half(frontier.saturating_sub(before).max(3).min(frontier - 1))));
            prop_assert_eq!(u64::from(window.width()), width);
            prop_assert!(window.ids().take(9).all(|id| selects(window, id)));
            prop_assert!(!selects(window, lower_half(next)), "written by whoever comes next, so not visible");
        }
    }

    #[test]
    fn a_near_frontier_of_the_same_server_and_table_is_usable() {
        assert_eq!(distrust(1_000, 1_000, true, true), None);
        assert_eq!(distrust(1_000, 1_000_000, true, true), None);
    }

    #[test]
    fn another_server_another_table_wraparound_and_the_future_are_not() {
        assert_eq!(distrust(1_000, 2_000, false, true), Some(Distrust::AnotherServer));
        assert_eq!(distrust(1_000, 2_000, true, false), Some(Distrust::AnotherTable));
        for (frontier, next) in [(1_000, 1_000 + FARTHEST), (2_000, 1_000), (0, 1_000)] {
            assert_eq!(distrust(frontier, next, true, true), Some(Distrust::OutOfReach));
        }
    }
}
