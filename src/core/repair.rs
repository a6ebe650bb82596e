//! Why a handoff was missing when the reconciler found it.
//!
//! Each repair has a reason. A late commit is normal in PostgreSQL; a row that the stream missed is a fault that an
//! operator should look at.

use crate::core::time::PgInstant;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The row existed before the source was read for the first time.
    Backlog,
    /// The transaction took the key long before it committed.
    LateCommit,
    /// The stream was running and had passed the row, but did not deliver it.
    MissedByStream,
    /// The order key of the row is far older than its commit.
    BackDated,
    /// The row has no order key, so a search by time could not find it.
    NullKey,
    /// The slot was lost or replaced meanwhile, so the stream has a gap there.
    GapAfterSlotLoss,
    /// The row was not read yet: the stream was away or behind, or the pass ran before the next poll.
    NotYetRead,
    /// The row was handed off and its recorded signal was removed since. Only an audit finds this.
    Vanished,
    /// The row took a key that was handed off before.
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

    /// The name in certificates and metrics.
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
    /// The stream ran without a gap since before the row was committed, and had passed it.
    pub stream_vouched: bool,
    /// A gap was recorded since the last pass.
    pub gap: bool,
    /// The source was never read before.
    pub first: bool,
}

/// An order key this far behind the watermark was written on purpose, not by a slow transaction.
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
        // The row is behind the watermark: transactions that began later committed first.
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
