//! Certificates: what a pass has proved, in a form that can be stored and compared.

use crate::core::frontier::Distrust;
use crate::core::repair::Reason;
use serde::Serialize;
use std::collections::BTreeMap;
use uuid::Uuid;

/// An order-independent digest of identities: their sum modulo 2^128, and their number. Two passes over the same rows
/// get the same digest in any order of reading. A missing or doubled identity changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    sum: u128,
    count: u64,
}

impl Digest {
    pub fn add(&mut self, id: Uuid) {
        // Identities of neighbouring keys differ in few bits. Multiplying by a large odd constant spreads them.
        const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        let mixed = (id.as_u128() ^ (id.as_u128() >> 61)).wrapping_mul(SPREAD);
        self.sum = self.sum.wrapping_add(mixed ^ (mixed >> 64));
        self.count += 1;
    }

    pub fn merge(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.count += other.count;
    }

    /// Parses the printed form, when an audit resumes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (count, sum) = text.split_once(':')?;
        Some(Self { sum: u128::from_str_radix(sum, 16).ok()?, count: count.parse().ok()? })
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:032x}", self.count, self.sum)
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The worker of `gov-handoff selftest`. Its certificates concern tables that the selftest drops at its end.
pub const REHEARSAL: &str = "gov_handoff_selftest";

/// The outcome of one certifying pass or audit of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Certificate {
    pub source: String,
    /// `certify` or `audit`.
    pub kind: &'static str,
    /// Whether every row was compared, or only the rows not older than the previous frontier.
    pub full: bool,
    /// Where a partial audit began. Such a certificate is complete through nothing, and never the latest of a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why a certifying pass compared every row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_because: Option<Distrust>,
    /// Complete through: every transaction below this id, on this server, up to this log position and time.
    pub frontier: String,
    pub system_identifier: String,
    pub lsn: Option<String>,
    pub taken_at: String,
    pub rows_checked: u64,
    pub already_recorded: u64,
    /// Rows before the boundary of the source: they have no signal, and are in no other count but the first.
    pub backlog: u64,
    pub repaired: BTreeMap<Reason, u64>,
    /// Counted by audits only.
    pub duplicates: Option<u64>,
    pub digest: Digest,
    pub duration_ms: u64,
}

impl Certificate {
    #[must_use]
    pub fn repaired_total(&self) -> u64 {
        self.repaired.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_digest_does_not_depend_on_order_and_notices_a_missing_one(ids in prop::collection::vec(any::<u128>(), 1..20)) {
            let digest = |ids: &[u128]| ids.iter().fold(Digest::default(), |mut d, id| { d.add(Uuid::from_u128(*id)); d });
            let mut reversed = ids.clone();
            reversed.reverse();
            prop_assert_eq!(digest(&ids), digest(&reversed));
            prop_assert_ne!(digest(&ids), digest(&ids[1..]));
            prop_assert_eq!(Digest::parse(&digest(&ids).to_string()), Some(digest(&ids)));
        }
    }
}
