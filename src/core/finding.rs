//! Findings: the severities and the kinds.

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
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Every kind that the daemon, the gates and the watchdog raise. A test compares the list with the places that raise
/// them.
pub const KINDS: [&str; 31] = [
    "audit_row_refused",
    "config_invalid",
    "cursor_dlq",
    "cursor_lag",
    "cursor_lease_conflict",
    "cursor_silent_gap",
    "cursor_watermark_regression",
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
    "queue.nvsz_violation",
    "queue.payload_violation",
    "queue_worker_silent",
    "row_replaced",
    "slot_budget_exceeded",
    "slot_lost",
    "slot_unused",
    "source_not_append_only",
    "source_not_conserved",
    "source_unreadable",
    "stream_column_mismatch",
    "stream_malformed_row",
    "stream_unknown_relation",
    "untrusted_source",
];
