//! The path that recorded a signal. It is part of the payload, so every signal shows how its row was found.

/// The path that recorded a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturedBy {
    /// The replication stream.
    Stream,
    /// A read of the table in the mode `poll`.
    Poll,
    /// A read of the open ranges behind a stream, before the first one, or while a required one is missing.
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
    /// The name in a signal's payload.
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
