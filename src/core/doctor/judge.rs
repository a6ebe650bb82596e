//! The judgements of single checks, as functions of what was found.

use super::Check;
use crate::core::worker_state::WorkerState;

const GIB: i64 = 1 << 30;
/// One probe of an open range, measured (FINDINGS §3).
const MICROS_PER_HOLE: i64 = 5;
/// With more open ranges than this, a pass over all of them takes a quarter of a second.
const MANY_HOLES: i64 = 50_000;
/// In seconds. The clocks of machines with time synchronisation differ by less.
const CLOCKS: f64 = 5.0;
/// The daemon drops the slot at 80 % of its budget. A warning comes at half of the budget.
const HALF: f64 = 0.5;

#[must_use]
pub fn server_version(number: i32) -> Check {
    let name = "server version";
    let found = format!("{}.{}", number / 10_000, number % 10_000);
    match number / 10_000 {
        ..15 => Check::fail(name, found, "15 is the oldest that has column lists and row filters; upgrade"),
        15..=18 => Check::ok(name, found),
        _ => {
            Check::warn(name, found, "tested with 15 to 18; run `gov-handoff selftest` before relying on it")
        }
    }
}

/// The workers of the family, each with its state, and who paused it.
#[must_use]
pub fn workers(members: &[(String, WorkerState, Option<String>)]) -> Check {
    let name = "workers";
    let (mut running, mut paused, mut idle) = (0, Vec::new(), Vec::new());
    for (worker, state, by) in members {
        let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let told = format!("{worker} {}{by}", state.name());
        match state {
            WorkerState::Running => running += 1,
            WorkerState::Paused => paused.push(told),
            WorkerState::Stopped | WorkerState::Silent | WorkerState::NeverRan => idle.push(told),
        }
    }
    let found = format!("{running} of {} run", members.len());
    if !idle.is_empty() {
        let advice = "start `gov-handoff run` with these in --workers (default: all)";
        Check::warn(name, format!("{found}: {}", [idle, paused].concat().join(", ")), advice)
    } else if !paused.is_empty() {
        let advice = "`gov-handoff resume WORKER` lets a worker go on";
        Check::warn(name, format!("{found}: {}", paused.join(", ")), advice)
    } else {
        Check::ok(name, found)
    }
}

/// The server's room for the connections of one more process.
#[must_use]
pub fn connections(used: i64, most: i64, needed: usize) -> Check {
    let name = "connections";
    let needed = i64::try_from(needed).unwrap_or(i64::MAX);
    let found = format!("{used} of {most} in use; a process with these workers takes up to {needed}");
    if most - used >= needed {
        Check::ok(name, found)
    } else {
        Check::warn(name, found, "raise max_connections, or run fewer workers in one process (--workers)")
    }
}

/// `must_stream`: the configuration requires a stream. `may_stream`: it asks for one if possible.
#[must_use]
pub fn wal_level(level: &str, must_stream: bool, may_stream: bool) -> Check {
    let name = "wal_level";
    let advice = "set wal_level = logical in postgresql.conf and restart the server, or say mode = \"poll\"";
    match level {
        "logical" => Check::ok(name, level),
        _ if must_stream => Check::fail(name, format!("{level}, so it cannot stream"), advice),
        _ if may_stream => Check::warn(name, format!("{level}, so it polls"), advice),
        _ => Check::ok(name, format!("{level}; polling needs no more")),
    }
}

/// The free replication slots or senders. `ours`: one of those in use is ours already.
#[must_use]
pub fn room(name: &'static str, setting: &str, used: i64, most: i64, ours: bool) -> Check {
    let found = format!("{used} of {most} in use");
    if used < most || ours {
        Check::ok(name, found)
    } else {
        Check::warn(name, found, format!("raise {setting} or free one; until then it polls"))
    }
}

/// How much of its budget the slot retains, and when the budget is reached.
#[must_use]
pub fn retained(bytes: i64, budget: i64, rate: Option<f64>, active: bool) -> Check {
    let name = "slot retention";
    #[allow(clippy::cast_precision_loss)] // For people to read.
    let share = bytes as f64 / budget.max(1) as f64;
    let left = match seconds_left(bytes, budget, rate) {
        Some(seconds) => format!(", {} to go at the present rate", span(seconds)),
        None => String::new(),
    };
    let found = format!("{} of {}{left}", size(bytes), size(budget));
    if !active {
        let advice = "nobody reads the slot, so it only grows: start `gov-handoff run`, or drop it with `gov-handoff replication teardown`";
        Check::warn(name, format!("{found}, not read by anybody"), advice)
    } else if share >= HALF {
        let advice = "the daemon gives the slot up at 80 % and polls; find what holds it back: a long transaction, a slow disk, a daemon that is behind";
        Check::warn(name, found, advice)
    } else {
        Check::ok(name, found)
    }
}

/// A slot of ours that the configuration does not name and no session reads.
#[must_use]
pub fn unused_slot(slot: &str, retained: Option<i64>, budget: i64) -> Check {
    let name = "slots not in use";
    let advice = format!(
        "name it with --slot if the daemon shall read it, else run: select pg_drop_replication_slot('{slot}')"
    );
    let found = format!("{slot} retains {} of {}", size(retained.unwrap_or(0)), size(budget));
    if over_budget(retained.unwrap_or(0), u64::try_from(budget).unwrap_or(0)) {
        Check::fail(name, found, advice)
    } else {
        Check::warn(name, found, advice)
    }
}

/// The share of the budget at which the daemon drops the slot. It is below 1 because the slot may still grow between
/// two looks.
pub const GIVE_UP_AT: f64 = 0.8;

#[must_use]
#[allow(clippy::cast_precision_loss)] // Budgets are far below 2^53.
pub fn over_budget(bytes: i64, budget: u64) -> bool {
    bytes as f64 >= budget as f64 * GIVE_UP_AT
}

/// The time until the budget is reached; `None` if the retained log does not grow.
#[must_use]
pub fn seconds_left(bytes: i64, budget: i64, rate: Option<f64>) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // For people to read.
    rate.filter(|r| *r > 1.0).map(|rate| (budget - bytes).max(0) as f64 / rate)
}

/// `max_slot_wal_keep_size` in bytes, negative when the server sets no bound.
#[must_use]
pub fn keep_size(bytes: i64, budget: i64, slot: bool, read: bool) -> Check {
    let name = "max_slot_wal_keep_size";
    if bytes >= 0 && bytes < budget {
        let advice = "the server takes the slot away before our budget is reached; raise it above wal_budget_mb or lower that";
        Check::warn(name, format!("{}, below our budget of {}", size(bytes), size(budget)), advice)
    } else if bytes >= 0 {
        Check::ok(name, size(bytes))
    } else if slot && !read {
        let advice = "set it, as a bound for the time when no daemon runs to keep the budget";
        Check::warn(name, "no bound, and nobody reads the slot", advice)
    } else {
        Check::ok(name, "no bound; the daemon keeps the budget while it runs")
    }
}

/// The open ranges of a source, and the number of ids in them. Such an id was taken and not committed yet, or never
/// will be.
#[must_use]
pub fn holes(source: &str, open: i64, hot: i64, ids: i64) -> Check {
    let name = "open id ranges";
    let cost = (open * MICROS_PER_HOLE).max(0) / 1_000;
    let found = format!(
        "{source}: {open} holes ({hot} hot), {ids} ids burnt or not committed yet, about {cost} ms a pass"
    );
    if open > MANY_HOLES {
        Check::warn(
            name,
            found,
            "passes over cold holes become slow; a sequence with a smaller cache burns fewer ids",
        )
    } else {
        Check::ok(name, found)
    }
}

/// The transaction that holds certificates back, and how long it is open. Longer than `limit` is not just slow.
#[must_use]
pub fn frontier(holder: Option<(String, Option<f64>)>, limit: f64) -> Check {
    let name = "frontier";
    match holder {
        None => Check::ok(name, "held back by nobody"),
        Some((who, Some(open))) if open > limit => Check::warn(
            name,
            format!("held back by {who}"),
            "certificates wait for it, handoffs do not; end it, or commit or roll it back if it is prepared",
        ),
        Some((who, _)) => Check::ok(name, format!("at {who}")),
    }
}

/// The roles that may create objects in a schema, besides its owner and superusers. We use qualified names only, so a
/// foreign object in `public` or beside a source can mislead only other programs. In the schema of the gates it could
/// replace a gate.
#[must_use]
pub fn creators(schema: &str, of_gates: bool, creators: &[String]) -> Check {
    let name = "schemas";
    if creators.is_empty() {
        return Check::ok(name, format!("{schema}: only its owner and superusers may create in it"));
    }
    let found = format!("{schema}: {} may create in it", creators.join(", "));
    if of_gates {
        let advice = "what is made there may be called in the place of a gate, with the rights of their owner: revoke create on schema gov_handoff from each";
        Check::fail(name, found, advice)
    } else if creators.iter().any(|c| c == "PUBLIC") {
        let advice = format!(
            "we look nothing up there without naming it, other programs may: revoke create on schema {schema} from public"
        );
        Check::warn(name, found, advice)
    } else {
        Check::ok(name, found)
    }
}

/// A trigger of another owner on a table that the gates write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTrigger {
    pub table: String,
    pub trigger: String,
    pub function: String,
    pub owner: String,
    /// The function belongs to a superuser or to the owner of the table.
    pub trusted: bool,
    /// The function sets its own search_path.
    pub pinned: bool,
}

#[must_use]
pub fn foreign_trigger(t: &ForeignTrigger) -> Check {
    let name = "triggers";
    let found = format!("{} on {} calls {} of {}", t.trigger, t.table, t.function, t.owner);
    if !t.trusted {
        let advice = "it runs with the rights of the gates' owner, and its own owner may change it: give the function to the table's owner";
        Check::warn(name, found, advice)
    } else if !t.pinned {
        let advice = "inside a gate names are looked up in pg_catalog alone: alter function … set search_path, or handoffs are refused where it names a table bare";
        Check::warn(name, format!("{found}, without a search_path"), advice)
    } else {
        Check::ok(name, found)
    }
}

/// A trigger whose function writes to the queue, by its text, and that `iu_sql_event_route` does not name.
#[must_use]
pub fn trigger_without_route(table: &str, trigger: &str, function: &str) -> Check {
    Check::warn(
        "trigger routes",
        format!("trigger {trigger} on {table} writes to the queue ({function}) and has no route"),
        "register it in iu_sql_event_route, by the name of the trigger, its table or its function",
    )
}

/// The difference of the clocks in seconds: ours minus the server's.
#[must_use]
pub fn clocks(seconds: f64) -> Check {
    let name = "clocks";
    let found = format!("ours differs from the server's by {seconds:+.1} s");
    if seconds.abs() > CLOCKS {
        Check::warn(
            name,
            found,
            "leases go by the server's clock and are safe; times in logs do not compare: run ntp",
        )
    } else {
        Check::ok(name, found)
    }
}

#[must_use]
pub fn size(bytes: i64) -> String {
    #[allow(clippy::cast_precision_loss)] // For people to read.
    let of = |unit: i64| bytes as f64 / unit as f64;
    match bytes {
        b if b >= GIB => format!("{:.1} GiB", of(GIB)),
        b if b >= 1 << 20 => format!("{:.1} MiB", of(1 << 20)),
        _ => format!("{:.0} KiB", of(1 << 10)),
    }
}

pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 172_800.0 => format!("{:.0} days", s / 86_400.0),
        s if s >= 7_200.0 => format!("{:.0} h", s / 3_600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s => format!("{s:.0} s"),
    }
}
