//! The lag, and when it deserves a finding.
//!
//! Lag is not the age of the last row, which grows indefinitely on a quiet source. It is the time since the last moment
//! up to which everything is known to be handed off. An idle reader confirms this again and again, so a quiet source
//! has no lag. A reader that is stuck cannot confirm it, whether rows arrive or not.

use crate::core::finding::Severity;
use crate::core::lsn::Lsn;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A lag of this many times its limit is no longer explained by load.
const HIGH: u32 = 5;
/// The number of mileposts kept, at one per second. If a stream is further behind, its lag is measured by the oldest
/// one.
const KEPT: usize = 600;

/// The severity of a lag; `None` below the limit.
#[must_use]
pub fn severity(lag: Duration, limit: Duration) -> Option<Severity> {
    if lag >= limit.saturating_mul(HIGH) {
        Some(Severity::High)
    } else if lag >= limit {
        Some(Severity::Warning)
    } else {
        None
    }
}

/// Positions of the end of the server's log at past moments, until the stream has passed them.
#[derive(Debug, Default)]
pub struct Mileposts(VecDeque<(Lsn, Instant)>);

impl Mileposts {
    /// The log now ends at `end`, and everything before `reached` is handed off.
    pub fn note(&mut self, end: Lsn, reached: Lsn, now: Instant) {
        while self.0.front().is_some_and(|(lsn, _)| *lsn <= reached) {
            self.0.pop_front();
        }
        // A full list keeps its oldest entry, which the lag is measured by.
        if end > reached && self.0.len() < KEPT {
            self.0.push_back((end, now));
        }
    }

    /// Forgets everything, because there is no stream.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    #[must_use]
    pub fn lag(&self, now: Instant) -> Duration {
        self.0.front().map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lag_is_nothing_then_a_warning_then_high() {
        let limit = SECOND * 60;
        let at = |seconds| severity(SECOND * seconds, limit);
        assert_eq!(
            [at(0), at(59), at(60), at(299), at(300)],
            [None, None, Some(Severity::Warning), Some(Severity::Warning), Some(Severity::High)]
        );
    }

    #[test]
    fn a_stream_that_keeps_up_has_no_lag_and_a_stuck_one_has_the_age_of_what_it_has_not_passed() {
        let start = Instant::now();
        let mut posts = Mileposts::default();
        for n in 0..10_u64 {
            let now = start + SECOND * u32::try_from(n).unwrap();
            posts.note(Lsn::from(n * 100), Lsn::from(n * 100), now);
            assert_eq!(posts.lag(now), Duration::ZERO);
        }
        for n in 10..2_000_u64 {
            posts.note(Lsn::from(n * 100), Lsn::from(1_050), start + SECOND * u32::try_from(n).unwrap());
        }
        // 1,000 was passed, 1,100 was not; it was written in second 11.
        assert_eq!(posts.lag(start + SECOND * 2_000), SECOND * 1_989);
        posts.note(Lsn::from(200_000), Lsn::from(200_000), start + SECOND * 2_000);
        assert_eq!(posts.lag(start + SECOND * 2_001), Duration::ZERO);
    }
}
