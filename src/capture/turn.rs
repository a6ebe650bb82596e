//! One source's turns in the table lane: how the source is read, when its next turn is due, and what is known of it.

use crate::capture::frontier::Proof;
use crate::config::Config;
use crate::core::batch_size::BatchSize;
use crate::core::handoff::Source;
use crate::daemon::finding_flag::Flag;
use crate::error::Error;
use crate::store::source::ClockReading;
use crate::store::source::catalogue::Strategy;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a pass over one source may go on while another source waits for its turn. Rows may come as fast as they are
/// handed off, for example where batches are small and the server is under load; the pass would never end. Each end costs
/// one read ahead, so the share is much longer than a batch.
const SHARE: Duration = Duration::from_millis(500);

/// The state of one source in the table lane.
pub struct Turn {
    pub source: Arc<Source>,
    pub strategy: Strategy,
    pub batch: BatchSize,
    /// Open while the batch is smaller than configured.
    pub reduced: Flag,
    /// The batch size that was last reported.
    pub said: Option<u32>,
    pub due: Instant,
    /// When the next turn of another source is due. A pass that takes long makes way for it.
    pub others_due: Option<Instant>,
    /// The last pass made way for another source before it was done.
    pub made_way: bool,
    pub pause: Duration,
    /// How long the last batch took.
    pub worked: Duration,
    pub all_ranges_at: Instant,
    pub cool_at: Instant,
    /// A moment, and the transactions that could then still fill holes.
    pub checkpoint: Option<(ClockReading, Vec<String>)>,
    pub proof: Proof,
    /// The last turn ended with an error that concerns this source only.
    pub unreadable: bool,
    /// Set when the last certifying pass failed or gave way: no new attempt before this time.
    pub uncertified_until: Option<Instant>,
    /// A `source_unreadable` finding may be open for this source.
    pub doubted: bool,
}

impl Turn {
    /// How long until the next certificate of a source that is read by ranges.
    pub fn certificate_in(&self, config: &Config) -> Option<Duration> {
        if self.unreadable || !matches!(self.strategy, Strategy::Ranges { .. }) {
            return None;
        }
        let again = self.uncertified_until.map(|at| at.saturating_duration_since(Instant::now()));
        Some(self.proof.due_in(config).max(again.unwrap_or_default()))
    }

    pub fn new(config: &Config, source: Arc<Source>, strategy: Strategy) -> Self {
        let now = Instant::now();
        Self {
            batch: BatchSize::within(source.definition.batch_size, config.batch_rows),
            reduced: Flag::new("handoff_throttled", &format!("{}:{}", config.worker, source.name())),
            said: None,
            source,
            strategy,
            due: now,
            others_due: None,
            made_way: false,
            pause: Duration::ZERO,
            worked: Duration::ZERO,
            all_ranges_at: now,
            cool_at: now,
            checkpoint: None,
            proof: Proof::default(),
            unreadable: false,
            uncertified_until: None,
            doubted: true,
        }
    }

    /// Whether a pass that began at `begun` has had its share while another source waits.
    pub fn should_make_way(&self, begun: Instant) -> bool {
        begun.elapsed() > SHARE && self.others_due.is_some_and(|at| at <= Instant::now())
    }

    /// A read that took too long is tried with a smaller batch first.
    pub fn may_halve(&self, e: &Error) -> bool {
        e.was_cancelled() && self.batch.may_shrink()
    }
}
