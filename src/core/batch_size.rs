//! The batch size of a source: smaller after a batch took too long, and larger again when batches are quick.

use std::time::Duration;

/// The smallest batch: fewer rows do not take less time.
const SMALLEST: u32 = 50;
/// This many quick batches in a row let the size grow. A single quick batch may have found its data in memory, or
/// little to do.
const QUICK_IN_A_ROW: u32 = 8;
/// A batch is quick if it took at most the allowed time divided by this. Twice as many rows then take at most half the
/// allowed time, so growing is not followed at once by halving.
const QUICK_PART: u32 = 4;

/// The rows of one batch of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    rows: u32,
    most: u32,
    quick: u32,
}

impl BatchSize {
    /// The largest size that both the definition and the configuration allow.
    #[must_use]
    pub fn within(definition: u32, configured: usize) -> Self {
        let most = definition.min(u32::try_from(configured).unwrap_or(u32::MAX)).max(1);
        Self { rows: most, most, quick: 0 }
    }

    #[must_use]
    pub fn rows(self) -> u32 {
        self.rows
    }

    #[must_use]
    pub fn most(self) -> u32 {
        self.most
    }

    /// The size is below its maximum, which is reported to the operator.
    #[must_use]
    pub fn is_reduced(self) -> bool {
        self.rows < self.most
    }

    /// Whether the size can be reduced.
    #[must_use]
    pub fn may_shrink(self) -> bool {
        self.rows > SMALLEST.min(self.most)
    }

    /// A batch exceeded its time. False if the size cannot be reduced.
    pub fn exceeded(&mut self) -> bool {
        self.quick = 0;
        let halved = (self.rows / 2).max(SMALLEST.min(self.most));
        std::mem::replace(&mut self.rows, halved) > halved
    }

    /// A batch took `took` of the allowed `may`. A batch with few rows counts, too: load may have made reads slow.
    pub fn took(&mut self, took: Duration, may: Duration) {
        if !self.is_reduced() {
            return;
        }
        self.quick = if took.saturating_mul(QUICK_PART) <= may { self.quick + 1 } else { 0 };
        if self.quick >= QUICK_IN_A_ROW {
            self.rows = self.rows.saturating_mul(2).min(self.most);
            self.quick = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAY: Duration = Duration::from_secs(5);
    const QUICK: Duration = Duration::from_millis(100);

    #[test]
    fn the_smaller_of_both_limits_holds() {
        assert_eq!(BatchSize::within(5_000, 20).rows(), 20);
        assert_eq!(BatchSize::within(2_000, 5_000).rows(), 2_000);
    }

    #[test]
    fn it_is_halved_down_to_a_floor_and_then_says_so() {
        let mut batch = BatchSize::within(5_000, 5_000);
        assert!(batch.exceeded() && batch.is_reduced());
        assert_eq!(batch.rows(), 2_500);
        while batch.exceeded() {}
        assert_eq!(batch.rows(), 50);
        let mut tiny = BatchSize::within(5_000, 20);
        assert!(!tiny.exceeded() && !tiny.is_reduced());
        assert_eq!(tiny.rows(), 20);
    }

    #[test]
    fn it_grows_back_after_enough_quick_ones_and_not_beyond() {
        let mut batch = BatchSize::within(5_000, 5_000);
        batch.exceeded();
        batch.exceeded();
        for _ in 0..QUICK_IN_A_ROW {
            assert_eq!(batch.rows(), 1_250);
            batch.took(QUICK, MAY);
        }
        assert_eq!(batch.rows(), 2_500);
        for _ in 0..100 {
            batch.took(QUICK, MAY);
        }
        assert_eq!((batch.rows(), batch.is_reduced()), (5_000, false));
    }

    #[test]
    fn one_that_is_not_quick_starts_the_count_anew() {
        let mut batch = BatchSize::within(5_000, 5_000);
        batch.exceeded();
        for _ in 0..20 {
            for _ in 1..QUICK_IN_A_ROW {
                batch.took(QUICK, MAY);
            }
            batch.took(MAY / 2, MAY);
        }
        assert_eq!(batch.rows(), 2_500);
    }
}
