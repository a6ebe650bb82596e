//! The last quarter of an hour, in the memory of this process: what the charts of the page show. It begins with the process; what has to
//! outlive it is in the database.

use crate::store::overview::Overview;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The length of what is kept.
pub const KEPT: Duration = Duration::from_secs(900);
/// Looks that come sooner than this after the last sample leave none.
const APART: Duration = Duration::from_secs(5);

/// Totals and sizes at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct Moment {
    pub at: String,
    pub lag_seconds: Option<f64>,
    /// Source rows read and applied since the beginning.
    pub rows: i64,
    /// Signals recorded since the beginning.
    pub signals: i64,
    /// Captured signals and staged rows.
    pub waiting: i64,
    pub dirty_groups: i64,
    pub jobs_ready: i64,
    pub jobs_running: i64,
    #[serde(skip)]
    taken: Instant,
}

#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Moment>,
}

/// A line of a chart: moments as seconds ago, and values. A moment without a value interrupts the line.
pub type Line = Vec<(f64, Option<f64>)>;

impl History {
    pub fn note(&mut self, board: &Overview, now: Instant) {
        if self.samples.back().is_some_and(|last| now.duration_since(last.taken) < APART) {
            return;
        }
        let (status, sum) = (&board.status, |of: fn(&crate::store::status::SourceStatus) -> i64| {
            board.status.sources.iter().map(of).sum()
        });
        self.samples.push_back(Moment {
            at: board.taken_at.clone(),
            lag_seconds: status.worker.as_ref().and_then(|worker| {
                worker.lag_seconds.map(|lag| if worker.alive { lag } else { lag + worker.tick_age_seconds })
            }),
            rows: sum(|source| source.rows_seen),
            signals: sum(|source| source.signals),
            waiting: status.captured_waiting + status.retrying,
            dirty_groups: status.dirty_groups,
            jobs_ready: status.jobs.ready,
            jobs_running: status.jobs.running,
            taken: now,
        });
        while self.samples.front().is_some_and(|first| now.duration_since(first.taken) > KEPT) {
            self.samples.pop_front();
        }
    }

    #[must_use]
    pub fn samples(&self) -> &VecDeque<Moment> {
        &self.samples
    }

    /// A size over time.
    #[must_use]
    pub fn level(&self, of: fn(&Moment) -> Option<f64>) -> Line {
        self.samples.iter().map(|s| (self.ago(s), of(s))).collect()
    }

    /// A rate over time: the growth of a total per second. A total that shrinks, as after a source was removed, has no rate.
    #[must_use]
    pub fn rate(&self, of: fn(&Moment) -> i64) -> Line {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs
            .map(|(before, after)| {
                let seconds = after.taken.duration_since(before.taken).as_secs_f64();
                #[allow(clippy::cast_precision_loss)] // A chart.
                let grown = (of(after) - of(before)) as f64;
                (self.ago(after), (grown >= 0.0 && seconds > 0.0).then(|| grown / seconds))
            })
            .collect()
    }

    fn ago(&self, sample: &Moment) -> f64 {
        self.samples.back().map_or(0.0, |last| last.taken.duration_since(sample.taken).as_secs_f64())
    }
}
