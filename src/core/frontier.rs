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
