//! What became of one row: the facts about its key, and the one sentence that follows from them.
//!
//! The store collects the facts, by index look-ups only. The judgement is here. No fact holds a row's contents: a row is
//! told by its key, its address and its group.
//!
//! ```text
//!  the row is there     excluded · handed off · retired · captured · untrusted · unmapped · staged · dead letter
//!                       · set aside · before the boundary · waiting · missing
//!  it is not            the same of what is recorded about its key, else: not committed · never existed
//! ```

mod judge;
mod timeline;

use crate::core::definition::Backlog;
use crate::core::time::PgInstant;
use crate::core::worker_state::WorkerState;
use serde::Serialize;
use uuid::Uuid;

pub use timeline::TimelineEntry;

/// Everything that is known about one key of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct TraceFacts {
    pub source: String,
    pub key: String,
    /// The committed row with this key; `None` if there is none now.
    pub row: Option<TracedRow>,
    /// What the definition in force makes of the row; `None` without a row.
    pub mapped: Option<TracedMapping>,
    pub signals: Vec<TracedSignal>,
    /// Captures that wait, and those that were drained.
    pub captures: Vec<TracedCapture>,
    pub staged: Option<TracedStaging>,
    pub letter: Option<TracedLetter>,
    /// When retention removed all signals of this key, as far as it kept the time.
    pub retired_key: Option<PgInstant>,
    /// Single signals that retention removed.
    pub retired_signals: Vec<RetiredSignal>,
    pub backlog: Option<TracedBacklog>,
    /// The open range that holds this id. `None` if there is none, and for keys that are not integers.
    pub open_range: Option<TracedRange>,
    /// The transaction below which everything of this source is handed off.
    pub frontier: Option<u64>,
    pub certificate: Option<TracedCertificate>,
    pub groups: Vec<TracedGroup>,
    pub recipients: Vec<TracedRecipient>,
    /// Why the row may have to wait.
    pub hindrance: Hindrance,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedRow {
    /// The transaction that wrote it, as a 64-bit number. Unknown for rows that an early server froze.
    pub transaction: Option<u64>,
    /// Known if the server keeps commit times (`track_commit_timestamp`).
    pub committed_at: Option<PgInstant>,
    /// The time that the row bears, if the source has such a column.
    pub occurred_at: Option<PgInstant>,
    /// Another row had this key before, and was handed off. This row has identities of its own.
    pub took_a_used_key: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TracedMapping {
    /// The definition excludes the row.
    Excluded,
    /// The signals that the row should have.
    Signals(Vec<ExpectedSignal>),
    /// The row cannot be handed off, for this reason.
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpectedSignal {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub kind: String,
}

/// A signal in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedSignal {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub kind: String,
    pub address: String,
    pub group: Option<String>,
    /// The path that recorded it.
    pub captured_by: Option<String>,
    pub recorded_at: Option<PgInstant>,
    /// The transaction that recorded it, as a 64-bit number.
    #[serde(skip)]
    pub transaction: Option<u64>,
    /// Its position in the feed; `None` while it waits for one.
    pub feed_position: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedCapture {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub kind: String,
    pub address: String,
    pub group: Option<String>,
    pub captured_by: Option<String>,
    pub why: CaptureReason,
    /// The producer that is not trusted.
    pub producer: Option<String>,
    pub captured_at: Option<PgInstant>,
    /// When it left the staging table for the outbox.
    pub drained_at: Option<PgInstant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureReason {
    InactiveType,
    Untrusted,
    Unmapped,
    /// The outbox rejected it when it was drained.
    RefusedByOutbox,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedStaging {
    pub attempts: i32,
    pub last_error: Option<String>,
    pub staged_at: Option<PgInstant>,
    pub next_attempt_at: Option<PgInstant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedLetter {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub code: String,
    pub attempts: i32,
    pub first_failed_at: PgInstant,
    pub last_failed_at: PgInstant,
    pub resolved_at: Option<PgInstant>,
    /// `replayed`, `discarded` or `superseded`.
    pub resolution: Option<String>,
    pub resolved_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetiredSignal {
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub recorded_at: Option<PgInstant>,
}

/// The row was there when its source was registered, and was not to be handed off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedBacklog {
    pub policy: Backlog,
    pub taken_at: Option<PgInstant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedRange {
    pub lo: i64,
    pub hi: i64,
    pub hot: bool,
    /// It reaches the end of the type: no higher id was ever seen.
    pub tail: bool,
    /// No lower id was ever seen.
    pub head: bool,
    pub opened_at: Option<PgInstant>,
}

/// The first certificate that covers the row, of those that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedCertificate {
    pub kind: String,
    pub taken_at: Option<PgInstant>,
    /// Complete through this transaction and position.
    pub frontier: u64,
    pub lsn: Option<String>,
    /// It is the oldest that is kept, so an earlier one may have covered the row already.
    pub may_be_later: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedGroup {
    pub group: String,
    pub verdict: Option<String>,
    pub dirty: bool,
    pub scanned_at: Option<PgInstant>,
    /// What is known of the row's own object, if it is a candidate.
    pub object: Option<TracedObject>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedObject {
    pub address: String,
    pub input: String,
    pub input_reason: Option<String>,
    pub verdict: Option<String>,
    pub scanned_at: Option<PgInstant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedRecipient {
    pub actor: String,
    pub step: String,
    pub muted: bool,
}

/// What keeps the intake from reading the row, if anything is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hindrance {
    pub worker: String,
    pub state: WorkerState,
    pub paused_because: Option<String>,
    /// An open finding says that the source cannot be read.
    pub source_unreadable: bool,
}

impl Default for Hindrance {
    fn default() -> Self {
        Self {
            worker: String::new(),
            state: WorkerState::NeverRan,
            paused_because: None,
            source_unreadable: false,
        }
    }
}

/// What became of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceState {
    HandedOff,
    /// Handed off; retention has removed the signals since.
    Retired,
    /// Before the boundary of its source: seeded as a candidate, or skipped.
    Seeded,
    Skipped,
    Excluded,
    /// An operator discarded or superseded its dead letter.
    SetAside,
    Captured,
    Untrusted,
    Unmapped,
    Staged,
    DeadLetter,
    /// It is there, and no path has come to it yet.
    Waiting,
    /// It is there, proven to have been read, and nowhere recorded.
    Missing,
    /// There is no such row, and a transaction may still commit it.
    NotCommitted,
    NeverExisted,
}

impl TraceState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HandedOff => "handed_off",
            Self::Retired => "retired",
            Self::Seeded => "seeded",
            Self::Skipped => "skipped",
            Self::Excluded => "excluded",
            Self::SetAside => "set_aside",
            Self::Captured => "captured",
            Self::Untrusted => "untrusted",
            Self::Unmapped => "unmapped",
            Self::Staged => "staged",
            Self::DeadLetter => "dead_letter",
            Self::Waiting => "waiting",
            Self::Missing => "missing",
            Self::NotCommitted => "not_committed",
            Self::NeverExisted => "never_existed",
        }
    }

    /// Nothing more has to happen to the row: it is handed off, or deliberately is not.
    #[must_use]
    pub fn is_settled(self) -> bool {
        matches!(
            self,
            Self::HandedOff | Self::Retired | Self::Seeded | Self::Skipped | Self::Excluded | Self::SetAside
        )
    }
}

/// The end of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceEnd {
    pub state: TraceState,
    pub sentence: String,
}

impl TraceFacts {
    #[must_use]
    pub fn conclude(&self) -> TraceEnd {
        judge::conclude(self)
    }

    /// What happened, in the order of time; what has no time comes last.
    #[must_use]
    pub fn timeline(&self) -> Vec<TimelineEntry> {
        timeline::of(self)
    }
}

fn as_text<S: serde::Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

#[cfg(test)]
mod tests;
