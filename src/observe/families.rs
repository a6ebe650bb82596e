//! Every metric by name, with its meaning. Labels are names of sources, kinds, reasons and types. They come from
//! definitions and from our own code, never from a row.

use crate::core::exposition::Type::{Counter, Gauge};
use crate::core::exposition::Value::{Real, Whole};
use crate::core::exposition::{Family, Value, render};
use crate::core::finding::{KINDS, Severity};
use crate::core::repair::Reason;
use crate::meter;
use crate::observe::job_families;
use crate::pulse::LoopSeen;
use crate::store::metrics::{Reading, SourceReading, WorkerReading};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The modes, as the daemon reports them; see `core::mode`.
const MODES: [&str; 3] = ["starting", "stream", "poll"];
/// The states of a worker, as the database tells them.
const WORKER_STATES: [&str; 4] = ["running", "paused", "stopped", "silent"];
/// What the server may say of a slot's log.
const WAL_STATES: [&str; 4] = ["reserved", "extended", "unreserved", "lost"];
const SEVERITIES: [Severity; 4] = [Severity::Info, Severity::Warning, Severity::High, Severity::Critical];

/// What this process knows of itself.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// How long this look at the database took.
    pub looked: Duration,
    /// How many looks failed since the process began.
    pub failed: u64,
    pub loops: Vec<LoopSeen>,
}

pub fn exposition(reading: &Reading, own: &Own) -> String {
    render(&families(reading, own))
}

/// Every name under which a sample may appear.
#[must_use]
pub fn names() -> BTreeSet<String> {
    families(&Reading::default(), &Own::default()).iter().flat_map(Family::names).collect()
}

fn families(reading: &Reading, own: &Own) -> Vec<Family> {
    let mut families = vec![
        Family::new("gov_handoff_build_info", Gauge, "Always 1; the version of the program that answers.")
            .with(&[("version", env!("CARGO_PKG_VERSION"))], Whole(1)),
    ];
    families.extend(worker(reading.worker.as_ref()));
    families.extend(stream(reading));
    families.extend(sources(&reading.sources));
    families.push(repairs(reading));
    families.extend(trouble(reading));
    families.push(workers(reading));
    families.extend(job_families::families(&reading.jobs));
    families.extend(process(own));
    families
}

/// Every worker of the family in each of its states, one of which it is in.
fn workers(reading: &Reading) -> Family {
    let family = Family::new(
        "gov_handoff_worker_state",
        Gauge,
        "1 for the state that a worker of the family is in: running, paused, stopped or silent.",
    );
    reading.workers.iter().fold(family, |f, w| {
        WORKER_STATES.iter().fold(f, |f, state| {
            f.with(&[("worker", &w.worker), ("state", state)], yes(w.state.name() == *state))
        })
    })
}

/// What this process measures itself. It begins at zero with the process.
fn process(own: &Own) -> Vec<Family> {
    let measured = |name, help, histogram: &meter::Histogram| {
        let seen = histogram.snapshot();
        Family::histogram(name, help, &seen.buckets, seen.count, seen.seconds)
    };
    let loops = Family::new(
        "gov_handoff_loop_age_seconds",
        Gauge,
        "Since a loop of this process last turned; /livez fails when one has not turned for too long.",
    );
    vec![
        measured(
            "gov_handoff_commit_to_handoff_seconds",
            "From the commit of a source transaction to that of its handoffs, for what the stream brought to this process.",
            &meter::COMMIT_TO_HANDOFF,
        ),
        measured(
            "gov_handoff_apply_seconds",
            "How long the database took to record a batch of this process.",
            &meter::APPLY,
        ),
        own.loops.iter().fold(loops, |f, l| f.with(&[("loop", &l.name)], Real(l.age.as_secs_f64()))),
        Family::of(
            Real(own.looked.as_secs_f64()),
            "gov_handoff_collector_duration_seconds",
            Gauge,
            "How long it took to read these metrics from the database.",
        ),
        Family::of(
            i64::try_from(own.failed).ok().map(Whole),
            "gov_handoff_collector_errors_total",
            Counter,
            "How often this process could not read its metrics or its health from the database.",
        ),
    ]
}

/// The lease and its holder.
fn worker(worker: Option<&WorkerReading>) -> Vec<Family> {
    let alive = worker.is_some_and(|w| w.alive);
    // The reported mode stays recorded after the holder is gone.
    let mode = worker.filter(|w| w.alive).map(|w| w.mode.as_deref().unwrap_or(MODES[0]));
    let mut modes =
        Family::new("gov_handoff_mode", Gauge, "1 for the mode that the holder of the lease captures in.");
    for name in MODES {
        modes = modes.with(&[("mode", name)], yes(mode == Some(name)));
    }
    vec![
        Family::of(
            yes(alive),
            "gov_handoff_lease_held",
            Gauge,
            "1 when an instance holds the lease and has renewed it in time.",
        ),
        Family::of(
            worker.and_then(|w| w.term).map(Whole),
            "gov_handoff_lease_term",
            Gauge,
            "How often the lease has changed hands.",
        ),
        Family::of(
            worker.map(|w| Real(w.tick_age)),
            "gov_handoff_lease_age_seconds",
            Gauge,
            "Since the lease was last renewed.",
        ),
        Family::of(
            worker.and_then(|w| w.ticked_at).map(Real),
            "gov_handoff_lease_renewed_timestamp_seconds",
            Gauge,
            "When the lease was last renewed, by the server's clock.",
        ),
        Family::of(
            worker.map(|w| Whole(w.ticks)),
            "gov_handoff_ticks_total",
            Counter,
            "Renewals of the lease and batches.",
        ),
        modes,
        Family::of(
            worker.and_then(lag),
            "gov_handoff_lag_seconds",
            Gauge,
            "Since when everything committed is known to be handed off; grows while nobody holds the lease.",
        ),
    ]
}

/// The lag that the daemon reported. If the daemon is no longer alive, the time since its last tick is added.
fn lag(worker: &WorkerReading) -> Option<Value> {
    #[allow(clippy::cast_precision_loss)] // Prometheus reads a float.
    let said = worker.lag_ms? as f64 / 1_000.0;
    Some(Real(if worker.alive { said } else { said + worker.tick_age }))
}

fn stream(reading: &Reading) -> Vec<Family> {
    let (slot, worker) = (reading.slot.as_ref(), reading.worker.as_ref());
    let status = slot.and_then(|s| s.wal_status.as_deref());
    let states = Family::new(
        "gov_handoff_slot_wal_status",
        Gauge,
        "1 for what the server says of the slot's log: reserved, extended, unreserved (soon lost) or lost.",
    );
    let states = WAL_STATES.iter().fold(states, |f, s| f.with(&[("status", s)], yes(status == Some(s))));
    vec![
        states,
        Family::of(
            slot.and_then(|s| s.safe_wal).map(Whole),
            "gov_handoff_slot_safe_wal_bytes",
            Gauge,
            "How much more log may be written before the server may give the slot up; absent where it sets no limit.",
        ),
        Family::of(
            reading.durable_lsn.and_then(whole),
            "gov_handoff_stream_durable_lsn_bytes",
            Gauge,
            "The log position before which everything the stream brought is recorded.",
        ),
        Family::of(
            yes(slot.is_some_and(|s| s.active)),
            "gov_handoff_slot_active",
            Gauge,
            "1 when the replication slot is being read.",
        ),
        Family::of(
            slot.map_or(Some(0), |s| s.retained).map(Whole),
            "gov_handoff_slot_retained_bytes",
            Gauge,
            "The log that the server keeps for the slot.",
        ),
        Family::of(
            worker.and_then(|w| w.slot_budget).map(Whole),
            "gov_handoff_slot_budget_bytes",
            Gauge,
            "The log that the slot may retain before it is given up.",
        ),
    ]
}

fn sources(sources: &[SourceReading]) -> Vec<Family> {
    let each = |name, kind, help, value: &dyn Fn(&SourceReading) -> Option<Value>| {
        sources.iter().fold(Family::new(name, kind, help), |f, s| f.with(&[("source", &s.source)], value(s)))
    };
    let holes = Family::new(
        "gov_handoff_holes",
        Gauge,
        "Stretches of ids never seen: hot ones may still be filled by an open transaction, cold ones hardly.",
    );
    vec![
        each("gov_handoff_rows_seen_total", Counter, "Source rows that were read and applied.", &|s| {
            Some(Whole(s.rows_seen))
        }),
        each("gov_handoff_signals_recorded_total", Counter, "Handoffs that were recorded.", &|s| {
            Some(Whole(s.signals))
        }),
        each("gov_handoff_rows_dead_lettered_total", Counter, "Rows that were set aside for good.", &|s| {
            Some(Whole(s.dead_lettered))
        }),
        each("gov_handoff_frontier_age_seconds", Gauge, "Since the certified frontier last moved.", &|s| {
            s.frontier_age.map(Real)
        }),
        each(
            "gov_handoff_frontier_age_transactions",
            Gauge,
            "How many transactions the certified frontier is behind.",
            &|s| s.frontier_behind.map(Whole),
        ),
        each("gov_handoff_certificate_age_seconds", Gauge, "Since the latest certificate was taken.", &|s| {
            s.certificate_age.map(Real)
        }),
        each(
            "gov_handoff_frontier_timestamp_seconds",
            Gauge,
            "When the certified frontier last moved, by the server's clock.",
            &|s| s.frontier_at.map(Real),
        ),
        each(
            "gov_handoff_certificate_timestamp_seconds",
            Gauge,
            "When the latest certificate was taken, by the server's clock.",
            &|s| s.certificate_at.map(Real),
        ),
        sources.iter().fold(holes, |f, s| {
            f.with(&[("source", &s.source), ("state", "hot")], Whole(s.hot_holes))
                .with(&[("source", &s.source), ("state", "cold")], Whole(s.cold_holes))
        }),
    ]
}

/// Every reason of every source, starting at zero: a counter that first appears with the value one hides its first step
/// from `increase()`.
fn repairs(reading: &Reading) -> Family {
    let mut totals = BTreeMap::new();
    for source in &reading.sources {
        totals.extend(Reason::ALL.map(|reason| ((source.source.as_str(), reason.name()), 0)));
    }
    totals.extend(reading.repairs.iter().map(|r| ((r.source.as_str(), r.reason.as_str()), r.repaired)));
    let family = Family::new(
        "gov_handoff_repairs_total",
        Counter,
        "Rows that the reconciler or an audit handed off, and why, as certificates have told.",
    );
    totals
        .into_iter()
        .fold(family, |f, ((source, reason), n)| f.with(&[("source", source), ("reason", reason)], Whole(n)))
}

/// What waits and what is wrong.
fn trouble(reading: &Reading) -> Vec<Family> {
    // Each kind starts at zero, so that an alert on a change sees the first one.
    let mut open = BTreeMap::new();
    for kind in KINDS {
        open.extend(SEVERITIES.map(|severity| ((kind, severity.name()), 0)));
    }
    open.extend(reading.findings.iter().map(|o| ((o.kind.as_str(), o.severity.as_str()), o.open)));
    let findings = Family::new("gov_handoff_findings_open", Gauge, "Open findings.");
    let captured = Family::new(
        "gov_handoff_captured_waiting",
        Gauge,
        "Signals that wait for their type to be activated, each type counted to 10000 at most.",
    );
    vec![
        open.into_iter().fold(findings, |f, ((kind, severity), n)| {
            f.with(&[("kind", kind), ("severity", severity)], Whole(n))
        }),
        Family::of(
            Whole(reading.dead_letters),
            "gov_handoff_dead_letters_open",
            Gauge,
            "Dead letters that nobody has decided about.",
        ),
        Family::of(
            Whole(reading.retrying),
            "gov_handoff_rows_retrying",
            Gauge,
            "Refused rows that will be tried again, counted to 10000 at most.",
        ),
        reading.captured.iter().fold(captured, |f, (kind, n)| f.with(&[("type", kind)], Whole(*n))),
    ]
}

fn yes(condition: bool) -> Value {
    Whole(i64::from(condition))
}

fn whole(n: u64) -> Option<Value> {
    i64::try_from(n).ok().map(Whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::mode::Mode;

    #[test]
    fn the_modes_are_those_that_the_daemon_reports() {
        let reported = [Mode::Starting, Mode::Streaming, Mode::Polling { reason: String::new() }];
        assert_eq!(reported.map(|m| m.name()), MODES);
    }

    #[test]
    fn a_database_that_nobody_has_run_on_has_no_lag_and_no_holder() {
        let out = exposition(&Reading::default(), &Own::default());
        assert!(out.contains("\ngov_handoff_lease_held 0\n"), "{out}");
        assert!(out.contains("\ngov_handoff_mode{mode=\"stream\"} 0\n"), "{out}");
        assert!(!out.contains("lag_seconds") && !out.contains("repairs_total"), "{out}");
    }
}
