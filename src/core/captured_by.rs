//! Which path recorded a signal: part of the signal's payload, so that every handoff tells how it was found.

/// The path that recorded a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturedBy {
    /// The replication stream.
    Stream,
    /// A read of the table while no stream exists: the table is the capture.
    Poll,
    /// A read of the open id ranges behind a stream, or in its absence although one was asked for.
    Reconcile,
    /// The certifying pass.
    Certify,
    /// A later attempt at a row that the database rejected first.
    Retry,
    /// An operator's replay, of a span of rows or of a dead letter.
    Replay,
    /// A repair by the audit.
    Audit,
}

impl CapturedBy {
    /// As it stands in a signal's payload.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Poll => "poll",
            Self::Reconcile => "reconcile",
            Self::Certify => "certify",
            Self::Retry => "retry",
            Self::Replay => "replay",
            Self::Audit => "audit",
        }
    }
}
