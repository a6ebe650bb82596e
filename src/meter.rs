//! What this process measures of its own work: how long a commit takes to be handed off, and how long a batch takes to apply.
//!
//! The numbers are of this process and begin with it; everything else that is measured comes from the database. The buckets are
//! fixed, so measuring costs a few atomic additions and no memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of the buckets, in microseconds: from the fastest commit that was measured to what an alert is about.
const BOUNDS: [u64; 16] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// From the commit of a source transaction to the commit of its handoffs, for what the stream brought.
pub static COMMIT_TO_HANDOFF: Histogram = Histogram::new();
/// From handing a batch to the database to its commit, by whatever path its rows came.
pub static APPLY: Histogram = Histogram::new();

/// Durations, counted by size.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// The state of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// The upper bound in seconds, and how many were at most that long.
    pub buckets: Vec<(f64, u64)>,
    pub count: u64,
    pub seconds: f64,
}

impl Histogram {
    const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BOUNDS.len() + 1], micros: AtomicU64::new(0) }
    }

    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    #[must_use]
    #[allow(clippy::cast_precision_loss)] // Prometheus reads floats.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (bound, bucket) in BOUNDS.iter().zip(&self.counts) {
            count += bucket.load(Relaxed);
            buckets.push((*bound as f64 / 1e6, count));
        }
        count += self.counts[BOUNDS.len()].load(Relaxed);
        HistogramSnapshot { buckets, count, seconds: self.micros.load(Relaxed) as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_counted_in_every_bucket_that_is_large_enough() {
        let histogram = Histogram::new();
        for micros in [1, 250, 251, 1_000_000, 900_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let seen = histogram.snapshot();
        let at_most = |seconds: f64| seen.buckets.iter().find(|(bound, _)| *bound == seconds).unwrap().1;
        assert_eq!((at_most(0.000_25), at_most(0.000_5), at_most(1.0), at_most(300.0)), (2, 3, 4, 4));
        assert_eq!((seen.count, seen.seconds), (5, 901.000_502));
        assert!(seen.buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1 && pair[0].0 < pair[1].0));
    }
}
