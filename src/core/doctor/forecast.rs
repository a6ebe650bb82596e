//! What runs out first, and when: from what is left of it and the rate at which it is used up.

use super::{Check, GIVE_UP_AT, size, span};
use serde::Serialize;

/// Something that is used up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shortage {
    pub what: &'static str,
    /// In seconds, at the present rate; `None` if the rate is not known, or nothing is used up.
    pub in_seconds: Option<f64>,
    pub found: String,
    /// It could not be asked; `found` says why.
    pub cannot_tell: bool,
}

/// What the forecast rests on. `None`: not known, or not there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Supplies {
    /// The log that the slot retains, its budget, and how many bytes a second it grows by.
    pub retained: Option<i64>,
    pub budget: i64,
    pub log_rate: Option<f64>,
    /// How much more log the server writes before it takes the slot away.
    pub safe_wal_size: Option<i64>,
    /// Free bytes of the disk that holds the log.
    pub free: Option<i64>,
    /// The age of the oldest transaction id of any database, and how many ids a second are used.
    pub xid_age: Option<i64>,
    pub xid_rate: Option<f64>,
    /// Seconds until the next deadline of a job, negative if it has passed; and how many jobs wait for their time.
    pub next_deadline: Option<f64>,
    pub deferred: Option<i64>,
    /// Seconds by which the oldest deferred job is late.
    pub deferred_late: Option<f64>,
    /// Bytes of the tables that retention empties, and seconds since they began to grow.
    pub kept: Option<i64>,
    pub kept_since: Option<f64>,
    /// What could not be asked, and why not.
    pub unknown: Vec<(&'static str, String)>,
}

/// The server refuses to give out transaction ids three million before they would wrap around.
const LAST_XID: i64 = (1 << 31) - 3_000_000;
/// What breaks within this time, in seconds, is worth a warning.
const SOON: f64 = 6.0 * 3_600.0;

/// What breaks first comes first; what has no date comes last.
#[must_use]
#[allow(clippy::cast_precision_loss)] // For people to read.
pub fn rank(s: &Supplies) -> Vec<Shortage> {
    let per = |left: f64, rate: Option<f64>, least: f64| {
        rate.filter(|rate| *rate > least).map(|rate| (left / rate).max(0.0))
    };
    let mut all = Vec::new();
    let mut note =
        |what, in_seconds, found| all.push(Shortage { what, in_seconds, found, cannot_tell: false });
    if let Some(retained) = s.retained {
        let left = s.budget as f64 * GIVE_UP_AT - retained as f64;
        let found = format!(
            "the slot retains {} of {}; the daemon gives it up at 80 %",
            size(retained),
            size(s.budget)
        );
        note("WAL budget", per(left, s.log_rate, 1.0), found);
    }
    if let Some(safe) = s.safe_wal_size {
        let found = format!("the server writes {} more before it takes the slot away", size(safe.max(0)));
        note("safe_wal_size", per(safe as f64, s.log_rate, 1.0), found);
    }
    if let (Some(free), Some(retained)) = (s.free, s.retained) {
        let found = format!(
            "{} are free, and the slot may retain {} more",
            size(free),
            size((s.budget - retained).max(0))
        );
        note("disk, by the log", per(free as f64, s.log_rate, 1.0), found);
    }
    if let Some(age) = s.xid_age {
        let left = (LAST_XID - age).max(0) as f64;
        let found =
            format!("the oldest is {:.1} % of the way to the last one", age as f64 * 100.0 / LAST_XID as f64);
        note("transaction ids", per(left, s.xid_rate, 0.0), found);
    }
    if let Some(kept) = s.kept {
        let rate = s.kept_since.filter(|age| *age > 3_600.0).map(|age| kept as f64 / age);
        let found = format!(
            "event_outbox and event_feed take {}; `gov-handoff retire` removes what is certified",
            size(kept)
        );
        note("retention", s.free.and_then(|free| per(free as f64, rate, 0.0)), found);
    }
    all.extend(of_jobs(s));
    let unknown = |(what, why): &(&'static str, String)| {
        let found = format!("cannot tell: {why}");
        Shortage { what, in_seconds: None, found, cannot_tell: true }
    };
    all.extend(s.unknown.iter().map(unknown));
    all.sort_by(|a, b| {
        let key = |s: &Shortage| s.in_seconds.unwrap_or(f64::INFINITY);
        key(a).total_cmp(&key(b))
    });
    all
}

/// Jobs that are late or that have a deadline.
fn of_jobs(s: &Supplies) -> Vec<Shortage> {
    let mut all = Vec::new();
    let mut note =
        |what, in_seconds, found| all.push(Shortage { what, in_seconds, found, cannot_tell: false });
    if let Some(late) = s.deferred_late.filter(|late| *late > 60.0) {
        let found = format!("the oldest that is due waits for {}: does gov_queue_tick run?", span(late));
        note("deferred jobs", Some(0.0), found);
    } else if let Some(deferred) = s.deferred {
        note("deferred jobs", None, format!("{deferred} wait for their time, none is late"));
    }
    if let Some(deadline) = s.next_deadline {
        note(
            "deadline of a job",
            Some(deadline.max(0.0)),
            "the next job that nobody has finished".to_owned(),
        );
    }
    all
}

/// The check: whether something breaks soon.
#[must_use]
pub fn first_to_break(ranked: &[Shortage]) -> Check {
    let name = "first to break";
    let Some(first) = ranked.first() else {
        return Check::cannot_tell(name, "nothing is known that runs out");
    };
    let unknown: Vec<_> = ranked.iter().filter(|s| s.cannot_tell).map(|s| s.what).collect();
    match first.in_seconds {
        // What could not be asked may be what breaks first. Only a known date that is near outranks it.
        None | Some(SOON..) if !unknown.is_empty() => Check::cannot_tell(name, unknown.join(", ")),
        None => Check::ok(name, "nothing runs out at a rate that is known"),
        Some(0.0) => {
            Check::warn(name, format!("{}, now: {}", first.what, first.found), "see what holds it up")
        }
        Some(seconds) if seconds < SOON => {
            let found = format!("{}, in {}: {}", first.what, span(seconds), first.found);
            Check::warn(name, found, "look at it before it runs out")
        }
        Some(seconds) => Check::ok(name, format!("{}, in {}", first.what, span(seconds))),
    }
}

/// For people: `in 3 h`, `now`, or nothing.
#[must_use]
pub fn when(shortage: &Shortage) -> String {
    match shortage.in_seconds {
        None => "no date".to_owned(),
        Some(0.0) => "now".to_owned(),
        Some(seconds) => format!("in {}", span(seconds)),
    }
}
