//! When a recorded frontier may still be used to select rows by age.
//!
//! A row's `xmin` has 32 bits and compares modulo 2^32. So a frontier is valid only while everything newer is less than
//! half of that range away. If the frontier is too old, belongs to another server or relation, or does not exist yet,
//! the pass compares the whole table instead. That is slower but never wrong.

use serde::Serialize;

/// Well below 2^31: passes must stop trusting ages long before the server itself would.
const FARTHEST: u64 = 1_500_000_000;

/// Why a frontier cannot select the new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distrust {
    /// There is no frontier yet.
    First,
    AnotherServer,
    /// The table was swapped, restored, truncated or rewritten. Rows that are new here may have been written by old
    /// transactions.
    AnotherTable,
    /// The frontier is too old to compare ages with, or no snapshot can have produced it.
    OutOfReach,
}

/// The transactions that began at or after a frontier and before the end of a snapshot.
///
/// A row carries the lower 32 bits of a transaction id, so these are compared, and the window may wrap around. The
/// window is less than half of all ids wide (see `distrust`), so each id occurs in it once. A frozen row keeps the id
/// it was written with and may later seem to be in the window. Then the row is compared once more and found recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub first: u32,
    /// The first id after the window.
    pub end: u32,
}

impl Window {
    /// Every row that a snapshot shows was written before `next`, so no new row is beyond it.
    #[must_use]
    pub fn new(frontier: u64, next: u64) -> Self {
        Self { first: lower_half(frontier), end: lower_half(next) }
    }

    #[must_use]
    pub fn width(self) -> u32 {
        self.end.wrapping_sub(self.first)
    }

    /// Every id in the window.
    pub fn ids(self) -> impl Iterator<Item = u32> {
        (0..self.width()).map(move |i| self.first.wrapping_add(i))
    }

    /// The window begins before the largest id and ends after the smallest.
    #[must_use]
    pub fn wraps(self) -> bool {
        self.end < self.first
    }
}

fn lower_half(id: u64) -> u32 {
    (id & u64::from(u32::MAX)) as u32
}

/// Why `frontier` cannot select rows, for a snapshot whose next transaction is `next`; `None` if it can.
#[must_use]
pub fn distrust(frontier: u64, next: u64, same_server: bool, same_table: bool) -> Option<Distrust> {
    // The server reserves the first ids (bootstrap, frozen). No snapshot has a frontier among them.
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

    /// Compares as the SQL condition does (`store::frontier::written_in`).
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
            prop_assert!(!selects(window, lower_half(next)), "written by the next transaction, so not visible");
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
