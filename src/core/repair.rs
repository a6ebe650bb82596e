//! Why a handoff was missing when the reconciler found it.
//!
//! A repair is explained, not just counted: a late commit is how PostgreSQL works, a miss of the stream is a fault that
//! somebody should look at.

use crate::core::time::PgInstant;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was there before anybody looked.
    Backlog,
    /// Its transaction took its key long before it committed.
    LateCommit,
    /// The stream was there, had passed it, and did not bring it.
    MissedByStream,
    /// Its order key lies far before its commit.
    BackDated,
    /// It has no order key, so nothing ordered by time could find it.
    NullKey,
    /// The slot was lost or replaced meanwhile; nobody vouched for that stretch.
    GapAfterSlotLoss,
    /// Nothing had read it yet: the stream was away or behind, or the pass came before the next poll.
    NotYetRead,
    /// It was handed off once, and its recorded signal was removed: only an audit finds that.
    Vanished,
    /// Another row took a key that was handed off before.
    Replaced,
}

impl Reason {
    pub const ALL: [Self; 9] = [
        Self::Backlog,
        Self::LateCommit,
        Self::MissedByStream,
        Self::BackDated,
        Self::NullKey,
        Self::GapAfterSlotLoss,
        Self::NotYetRead,
        Self::Vanished,
        Self::Replaced,
    ];

    /// As certificates and metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::LateCommit => "late_commit",
            Self::MissedByStream => "missed_by_stream",
            Self::BackDated => "back_dated",
            Self::NullKey => "null_key",
            Self::GapAfterSlotLoss => "gap_after_slot_loss",
            Self::NotYetRead => "not_yet_read",
            Self::Vanished => "vanished",
            Self::Replaced => "replaced",
        }
    }
}

/// What is known when a missing row is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    pub occurred_at: Option<PgInstant>,
    /// Whether the source has an order column at all.
    pub ordered: bool,
    /// The source's watermark when the pass began.
    pub watermark: Option<PgInstant>,
    /// The stream was running, without a gap, since before the row was committed, and had passed it.
    pub stream_vouched: bool,
    /// A gap was recorded since the last pass.
    pub gap: bool,
    /// Nobody has looked at this source before.
    pub first: bool,
}

/// Order keys this far behind the watermark were written on purpose, not by a slow transaction.
const BACK_DATED: i64 = 3_600 * 1_000_000;

#[must_use]
pub fn explain(c: &Circumstances) -> Reason {
    if c.stream_vouched {
        return Reason::MissedByStream;
    }
    if c.gap {
        return Reason::GapAfterSlotLoss;
    }
    if c.first {
        return Reason::Backlog;
    }
    match (c.occurred_at, c.watermark) {
        (None, _) if c.ordered => Reason::NullKey,
        (Some(at), Some(mark)) if mark.as_pg_micros().saturating_sub(at.as_pg_micros()) > BACK_DATED => {
            Reason::BackDated
        }
        // Behind what was handed off already: others that began later were quicker.
        (Some(at), Some(mark)) if at < mark => Reason::LateCommit,
        _ => Reason::NotYetRead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Option<PgInstant> {
        Some(PgInstant::from_pg_micros(seconds * 1_000_000))
    }

    #[test]
    fn certificates_and_metrics_call_a_reason_the_same() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }

    #[test]
    fn each_reason_has_its_circumstances() {
        let base = Circumstances {
            occurred_at: at(9_990),
            ordered: true,
            watermark: at(10_000),
            stream_vouched: false,
            gap: false,
            first: false,
        };
        assert_eq!(explain(&base), Reason::LateCommit);
        assert_eq!(explain(&Circumstances { occurred_at: at(1), ..base }), Reason::BackDated);
        assert_eq!(explain(&Circumstances { occurred_at: None, ..base }), Reason::NullKey);
        assert_eq!(explain(&Circumstances { occurred_at: at(10_001), ..base }), Reason::NotYetRead);
        assert_eq!(explain(&Circumstances { watermark: None, ..base }), Reason::NotYetRead);
        let unordered = Circumstances { occurred_at: None, ordered: false, ..base };
        assert_eq!(explain(&unordered), Reason::NotYetRead);
        assert_eq!(explain(&Circumstances { first: true, ..base }), Reason::Backlog);
        assert_eq!(explain(&Circumstances { gap: true, ..base }), Reason::GapAfterSlotLoss);
        assert_eq!(explain(&Circumstances { stream_vouched: true, ..base }), Reason::MissedByStream);
    }
}
