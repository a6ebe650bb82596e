//! When a recorded frontier may still be used to select rows by age.
//!
//! A row's `xmin` is 32 bits wide and compares modulo 2^32, so a frontier is only good while everything newer than it is
//! less than half of that away. Beyond, on another server, or on the first run, the whole table is compared instead; that
//! is slower and never wrong.

/// Well below 2^31: passes must stop trusting ages long before the server itself would.
const FARTHEST: u64 = 1_500_000_000;

/// Whether rows may be selected by `frontier`, seen from a snapshot whose next transaction is `next`.
#[must_use]
pub fn usable(frontier: u64, next: u64, same_system: bool) -> bool {
    // The first ids are reserved by the server (bootstrap, frozen); a frontier among them was never a snapshot's.
    same_system && frontier >= 3 && frontier <= next && next - frontier < FARTHEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_frontier_of_the_same_server_is_usable() {
        assert!(usable(1_000, 1_000, true));
        assert!(usable(1_000, 1_000_000, true));
    }

    #[test]
    fn another_server_wraparound_and_the_future_are_not() {
        assert!(!usable(1_000, 2_000, false));
        assert!(!usable(1_000, 1_000 + FARTHEST, true));
        assert!(!usable(2_000, 1_000, true));
        assert!(!usable(0, 1_000, true));
    }
}
