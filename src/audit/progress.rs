//! The scope of an audit, and what the audit has counted so far.

use crate::core::certificate::{Certificate, Digest};
use crate::core::handoff::Source;
use crate::core::repair::Reason;
use crate::error::Result;
use crate::store::audit::SignalTable;
use crate::store::frontier::Snapshot;
use crate::store::read::{Bound, Span};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// What to audit and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Every row; otherwise those not older than the last certificate.
    pub full: bool,
    /// Repair nothing.
    pub check: bool,
    pub since: Span,
}

/// The scope in a form that is stored. An audit resumes only an audit with the same terms: one with other rows or
/// other rules has not checked the same things.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub depth: AuditDepth,
    pub check: bool,
    pub since: Option<String>,
    /// A digest of the source's definition.
    pub definition: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditDepth {
    /// Every row.
    Full,
    /// Every row from one on.
    Since,
    /// Rows not older than the last certificate.
    #[default]
    Recent,
}

impl Scope {
    pub(super) fn terms(&self, source: &Source) -> Result<Terms> {
        let since = self.since.from.as_ref().map(|from| match from {
            Bound::Key(text) | Bound::Time(text) => text.clone(),
        });
        let depth = match (self.full, &since) {
            (true, None) => AuditDepth::Full,
            (true, Some(_)) => AuditDepth::Since,
            (false, _) => AuditDepth::Recent,
        };
        // By way of a JSON value, whose fields have a fixed order.
        let definition = serde_json::to_value(&source.definition)?.to_string();
        let definition = Sha256::digest(definition.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        Ok(Terms { depth, check: self.check, since, definition })
    }
}

/// What one source's audit has counted so far, as it is stored between chunks. The names of what it counted are
/// stored beside it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Progress {
    #[serde(default)]
    pub terms: Terms,
    pub started_at: String,
    pub finished: bool,
    pub phase: AuditPhase,
    pub frontier: String,
    pub system_identifier: String,
    pub lsn: Option<String>,
    pub rows: u64,
    pub chunks: u64,
    /// Rows before the boundary of the source. They have no signal, and none is missing.
    #[serde(default)]
    pub backlog: u64,
    pub missing: u64,
    pub repaired: u64,
    pub reasons: BTreeMap<Reason, u64>,
    pub doubled: u64,
    pub orphans: u64,
    /// The registers that excuse rows of the source, where somebody changed them past the gates: `backlog`, `retired`.
    #[serde(default)]
    pub registers: Vec<String>,
    /// Keys of the current chunk that were found missing. They may be repaired by now, but are not counted yet.
    pub repairing: Vec<(String, Reason)>,
    /// The key of the last orphan. Signals of one key follow each other, and the key is named once.
    pub last_orphan: Option<String>,
    pub digest: String,
    pub spent_ms: u64,
    /// Nothing of this audit was stored yet.
    #[serde(skip)]
    pub(super) anew: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditPhase {
    #[default]
    Rows,
    Signals,
    Captures,
    Over,
}

impl AuditPhase {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Rows => Self::Signals,
            Self::Signals => Self::Captures,
            Self::Captures | Self::Over => Self::Over,
        }
    }

    /// Where a phase over signals finds them.
    pub(super) fn place(self) -> Option<SignalTable> {
        match self {
            Self::Signals => Some(SignalTable::Outbox),
            Self::Captures => Some(SignalTable::Pending),
            Self::Rows | Self::Over => None,
        }
    }
}

impl Progress {
    /// Nothing counted yet. At its end the audit is complete through this snapshot.
    pub(super) fn begun(snapshot: &Snapshot, terms: Terms) -> Self {
        Self {
            terms,
            started_at: snapshot.taken_at.clone(),
            frontier: snapshot.xmin.to_string(),
            system_identifier: snapshot.system_identifier.clone(),
            lsn: snapshot.lsn.map(|l| l.to_string()),
            digest: Digest::default().to_string(),
            anew: true,
            ..Self::default()
        }
    }

    /// Nothing was wrong.
    #[must_use]
    pub fn clean(&self) -> bool {
        self.missing == 0 && self.doubled == 0 && self.orphans == 0 && self.registers.is_empty()
    }

    /// Adds a finished chunk of rows: how many, and how many of the backlog; the reason of each row that lacked a signal, and the digest over the signals of
    /// all rows.
    pub(super) fn count(
        &mut self,
        (rows, backlog): (u64, u64),
        lacking: impl Iterator<Item = Reason>,
        digest: Digest,
    ) {
        self.chunks += 1;
        self.rows += rows;
        self.backlog += backlog;
        for reason in lacking {
            self.missing += 1;
            if !self.terms.check {
                self.repaired += 1;
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
        let mut sum = Digest::parse(&self.digest).unwrap_or_default();
        sum.merge(digest);
        self.digest = sum.to_string();
    }

    /// The certificate of the audit; an audit with `--check` has none.
    pub(super) fn certificate(&self, source: &Source) -> Option<Certificate> {
        (!self.terms.check).then(|| Certificate {
            source: source.name().to_owned(),
            kind: "audit",
            full: self.terms.depth == AuditDepth::Full,
            full_because: None,
            since: self.terms.since.clone(),
            frontier: self.frontier.clone(),
            system_identifier: self.system_identifier.clone(),
            lsn: self.lsn.clone(),
            taken_at: self.started_at.clone(),
            rows_checked: self.rows,
            already_recorded: self.rows.saturating_sub(self.missing + self.backlog),
            backlog: self.backlog,
            repaired: self.reasons.clone(),
            duplicates: Some(self.doubled),
            digest: Digest::parse(&self.digest).unwrap_or_default(),
            duration_ms: self.spent_ms,
        })
    }
}
