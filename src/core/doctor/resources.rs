//! The judgements about what stands between us and the server, and what may run out.

use super::judge::size;
use super::{Check, span};

/// Below this, in seconds, a daemon that is down for a night or a weekend loses its slot.
const IDLE_FOR_DAYS: f64 = 3.0 * 86_400.0;

/// Whether the server runs each of our sessions in a process of its own, and from first to last in the same one.
/// `asked` is the port that we connected to, `server` the port that the server listens on; `None` on a Unix socket.
#[must_use]
pub fn pooler(opened: i32, now: i32, other: Option<i32>, asked: u16, server: Option<i32>) -> Check {
    let name = "pooler";
    if opened != now || other == Some(now) {
        let found = format!("two of our sessions share the server's process {now}");
        let advice = "connect to the server itself, or to a pooler that gives each client a session of its own (pool_mode = session)";
        return Check::fail(name, found, advice);
    }
    match server {
        Some(server) if server != i32::from(asked) => Check::ok(
            name,
            format!("sessions are our own; something forwards port {asked} to the server's {server}"),
        ),
        _ => Check::ok(name, "sessions are our own"),
    }
}

/// `None`: the server does not know the setting. In seconds; zero means no timeout.
#[must_use]
pub fn idle_slot_timeout(seconds: Option<f64>) -> Check {
    let name = "idle_replication_slot_timeout";
    match seconds {
        None => Check::ok(name, "the server has no such setting"),
        Some(0.0) => Check::ok(name, "none"),
        Some(seconds) if seconds < IDLE_FOR_DAYS => Check::warn(
            name,
            format!("{}: a daemon that is down for longer loses its slot", span(seconds)),
            "switch it off or raise it above the longest time that the daemon may be down",
        ),
        Some(seconds) => Check::ok(name, span(seconds)),
    }
}

/// Free bytes where the log is, against what the slot may still take.
#[must_use]
pub fn disk(free: i64, may_take: i64) -> Check {
    let name = "disk for the log";
    let found = format!("{} free; the slot may take {} more", size(free), size(may_take));
    if free >= may_take {
        Check::ok(name, found)
    } else {
        let advice = "free some space, or lower wal_budget_mb and max_slot_wal_keep_size";
        Check::warn(name, found, advice)
    }
}

/// An executor that may claim jobs, and when it was last heard of, in seconds.
#[must_use]
pub fn executor(id: &str, silent_for: Option<f64>) -> Check {
    let name = "executors";
    let found = match silent_for {
        Some(seconds) => format!("{id} is silent for {}", span(seconds)),
        None => format!("{id} was never heard of"),
    };
    Check::warn(name, found, "start it, or disable it so that others get its jobs")
}

#[must_use]
pub fn session_settings(refused: Option<&str>) -> Check {
    let name = "session settings";
    match refused {
        None => Check::ok(name, "as asked, row_security off among them"),
        Some(found) => {
            Check::fail(name, found, "connect to the server itself, or let the pooler pass `options` on")
        }
    }
}
