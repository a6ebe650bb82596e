//! Findings: the severities and the kinds.

use serde::Serialize;
use std::fmt;

/// The severity of a finding, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Info,
    Warning,
    High,
    Critical,
}

impl Severity {
    /// The name in the table `system_issues`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// By its name in the table. A word that others wrote into that table counts as a warning, so that it is shown.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "info" => Self::Info,
            "high" => Self::High,
            "critical" => Self::Critical,
            _ => Self::Warning,
        }
    }
}

impl Serialize for Severity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What the watchdog says about a worker, from its silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Silence {
    Ok,
    Warning,
    Critical,
}

impl Silence {
    /// By its name in the watchdog's answer. An unknown word counts as critical.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "ok" => Self::Ok,
            "warning" => Self::Warning,
            _ => Self::Critical,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Every kind that the daemon, the gates and the watchdog raise. A test compares the list with the places that raise
/// them.
pub const KINDS: [&str; 44] = [
    "audit_discrepancy",
    "audit_failed",
    "audit_row_refused",
    "backlog_not_seeded",
    "config_invalid",
    "cursor_dlq",
    "cursor_lag",
    "cursor_lease_conflict",
    "cursor_silent_gap",
    "cursor_watermark_regression",
    "feed_not_conserved",
    "group_invalidation_storm",
    "handoff_deferred",
    "handoff_dlq",
    "handoff_dlq_overflow",
    "handoff_fallback",
    "handoff_lag",
    "handoff_missed",
    "handoff_silent_gap",
    "handoff_throttled",
    "handoff_unregistered_type",
    "input_rejected",
    "job_dlq",
    "job_overdue",
    "job_tick_failed",
    "queue.emit_refused",
    "queue.nvsz_violation",
    "queue.payload_violation",
    "queue_worker_silent",
    "row_replaced",
    "schedule_failed",
    "slot_budget_exceeded",
    "slot_lost",
    "slot_unused",
    "source_not_append_only",
    "source_not_conserved",
    "source_unreadable",
    "stream_column_mismatch",
    "stream_malformed_row",
    "stream_unknown_relation",
    "subscription_broadcast",
    "untrusted_source",
    "worker_failing",
    "worker_paused",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_a_strange_word_is_no_good_news() {
        for severity in [Severity::Info, Severity::Warning, Severity::High, Severity::Critical] {
            assert_eq!(Severity::of(severity.name()), severity);
        }
        for silence in [Silence::Ok, Silence::Warning, Silence::Critical] {
            assert_eq!(Silence::of(silence.name()), silence);
        }
        assert!(Severity::of("urgent") > Severity::Info && Silence::of("gone") != Silence::Ok);
    }
}
