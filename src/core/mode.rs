//! The mode: how rows are read, and when that changes.
//!
//! ```text
//!                 started                         fault
//!   Starting ────────────────▶ Streaming ──────────────────────┐
//!      │                           ▲                           │
//!      │ fault                     │ started again             ▼
//!      └───────────────────────────┴────────────────── Polling { reason }
//! ```
//!
//! A worker that is paused ends its stream; when it is resumed, it is `Starting` again. With intent `poll` the mode stays
//! `Polling`. With intent `stream` it can be `Polling` in name only: the table reads keep their slow reconciling cadence,
//! because the operator does not want polling for latency.

use crate::core::captured_by::CapturedBy;
use std::time::Duration;

/// What the operator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    Auto,
    Stream,
    Poll,
}

impl Intent {
    /// The word of `--mode`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Stream => "stream",
            Self::Poll => "poll",
        }
    }
}

/// What the daemon does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Starting,
    Streaming,
    Polling { reason: String },
}

/// What happened to the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamNews {
    Started,
    Faulted { reason: String },
}

impl Mode {
    #[must_use]
    pub fn first(intent: Intent) -> Self {
        match intent {
            Intent::Poll => Self::Polling { reason: "asked for with --mode poll".to_owned() },
            Intent::Auto | Intent::Stream => Self::Starting,
        }
    }

    #[must_use]
    pub fn after(self, news: StreamNews) -> Self {
        match news {
            StreamNews::Started => Self::Streaming,
            StreamNews::Faulted { reason } => Self::Polling { reason },
        }
    }

    /// By its name, as the heartbeat has it.
    #[must_use]
    pub fn of(name: Option<&str>, reason: Option<&str>) -> Self {
        match name {
            Some("stream") => Self::Streaming,
            Some("poll") => Self::Polling { reason: reason.unwrap_or_default().to_owned() },
            _ => Self::Starting,
        }
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Streaming => "stream",
            Self::Polling { .. } => "poll",
        }
    }

    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        if let Self::Polling { reason } = self { Some(reason) } else { None }
    }

    /// Whether the keyset pass polls for new rows (low latency) or only reconciles.
    #[must_use]
    pub fn polls_for_latency(&self, intent: Intent) -> bool {
        matches!(self, Self::Polling { .. }) && intent != Intent::Stream
    }

    /// Whether the keyset pass has to be quick: whenever there is no stream, unless the intent is `stream`. That
    /// includes the start, because creating a slot waits for every running transaction.
    #[must_use]
    pub fn hurries(&self, intent: Intent) -> bool {
        *self != Self::Streaming && intent != Intent::Stream
    }

    /// The path that is recorded for rows of the keyset pass.
    #[must_use]
    pub fn keyset_capture(&self, intent: Intent) -> CapturedBy {
        if self.polls_for_latency(intent) { CapturedBy::Poll } else { CapturedBy::Reconcile }
    }
}

/// The pause before the next keyset pass: short while there is work, then doubling up to `slowest`. Measurements showed
/// ten milliseconds to be the best compromise between latency and load. An idle source is read rarely.
#[must_use]
pub fn next_pause(found: usize, last: Duration, slowest: Duration) -> Duration {
    const QUICKEST: Duration = Duration::from_millis(10);
    if found > 0 { QUICKEST.min(slowest) } else { last.max(QUICKEST / 2).saturating_mul(2).min(slowest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_leads_to_polling_and_a_start_back_to_streaming() {
        let mode = Mode::first(Intent::Auto).after(StreamNews::Faulted { reason: "no slot".to_owned() });
        assert_eq!(mode.reason(), Some("no slot"));
        assert!(mode.polls_for_latency(Intent::Auto));
        assert!(!mode.polls_for_latency(Intent::Stream));
        assert!(Mode::Starting.hurries(Intent::Auto) && !Mode::Starting.polls_for_latency(Intent::Auto));
        assert!(!Mode::Starting.hurries(Intent::Stream) && !Mode::Streaming.hurries(Intent::Auto));
        assert_eq!(mode.after(StreamNews::Started), Mode::Streaming);
    }

    #[test]
    fn the_pause_doubles_while_idle_and_falls_back_at_once() {
        let slowest = Duration::from_millis(500);
        let mut pause = Duration::ZERO;
        for _ in 0..10 {
            let next = next_pause(0, pause, slowest);
            assert!(next >= pause && next <= slowest);
            pause = next;
        }
        assert_eq!(pause, slowest);
        assert_eq!(next_pause(1, pause, slowest), Duration::from_millis(10));
    }
}
