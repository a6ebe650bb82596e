//! Whether a quiet stream is idle or dead. The daemon writes a message to the server's log; a live stream delivers it.
//!
//! Anything that arrives is a sign of life, a keepalive included. A server may be decoding a long part of the log that
//! holds nothing for us, or a huge transaction of tables that are not published. Then it sends only keepalives, and our
//! message waits behind.

use crate::core::lsn::Lsn;
use std::time::{Duration, Instant};

/// The probe is sent after the answer time divided by this.
const ASK_AFTER: u32 = 5;

#[derive(Debug)]
pub struct Probe {
    /// If there is no sign of life for this long after the probe, the stream is dead.
    answer: Duration,
    /// The last probe, and when something last arrived after it.
    sent: Option<(Lsn, Instant)>,
}

/// What to do about a quiet stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    Ask,
    Wait,
    Dead(Lsn),
}

impl Probe {
    #[must_use]
    pub fn new(answer: Duration) -> Self {
        Self { answer, sent: None }
    }

    /// How long the stream may be quiet before a probe is sent.
    #[must_use]
    pub fn ask_after(&self) -> Duration {
        self.answer / ASK_AFTER
    }

    #[must_use]
    pub fn answer(&self) -> Duration {
        self.answer
    }

    /// The probe is at position `at` in the log.
    pub fn asked(&mut self, at: Lsn, now: Instant) {
        self.sent = Some((at, now));
    }

    /// Something arrived on the stream.
    pub fn heard(&mut self, now: Instant) {
        if let Some((_, since)) = &mut self.sent {
            *since = now;
        }
    }

    /// The stream has reached `reached`, and nothing has arrived for a while.
    #[must_use]
    pub fn quiet(&self, reached: Lsn, now: Instant) -> Quiet {
        match self.sent {
            Some((at, since)) if reached < at => {
                let dead = now.saturating_duration_since(since) >= self.answer;
                if dead { Quiet::Dead(at) } else { Quiet::Wait }
            }
            _ => Quiet::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Duration = Duration::from_secs(20);

    fn asked(now: Instant) -> Probe {
        let mut probe = Probe::new(ANSWER);
        assert_eq!(probe.quiet(Lsn::ZERO, now), Quiet::Ask);
        probe.asked(100.into(), now);
        probe
    }

    #[test]
    fn a_stream_that_does_not_answer_is_dead_after_a_while() {
        let now = Instant::now();
        let probe = asked(now);
        assert_eq!(probe.quiet(99.into(), now + ANSWER - Duration::from_millis(1)), Quiet::Wait);
        assert_eq!(probe.quiet(99.into(), now + ANSWER), Quiet::Dead(100.into()));
    }

    #[test]
    fn one_whose_answer_came_is_asked_again_and_never_dead() {
        let now = Instant::now();
        assert_eq!(asked(now).quiet(100.into(), now + ANSWER * 10), Quiet::Ask);
    }

    #[test]
    fn one_that_says_anything_at_all_is_waited_for() {
        let now = Instant::now();
        let mut probe = asked(now);
        for half in 1..20 {
            let later = now + ANSWER / 2 * half;
            assert_eq!(probe.quiet(0.into(), later), Quiet::Wait);
            probe.heard(later);
        }
        assert_eq!(probe.quiet(0.into(), now + ANSWER * 20), Quiet::Dead(100.into()));
    }
}
