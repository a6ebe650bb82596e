//! Every check by its name, and why it matters. `docs/operating.md` shows this table.

/// The name of each check, in the order in which an operator would ask, and why it matters.
pub const CHECKS: [(&str, &str); 36] = [
    (
        "session settings",
        "without them a policy could hide rows from us without an error, and a commit might not be durable",
    ),
    (
        "pooler",
        "a pooler that shares one server session between clients drops what a session has set, and rows become invisible",
    ),
    ("server version", "the stream needs column lists and row filters, which PostgreSQL has from 15 on"),
    ("primary", "a standby takes no writes, so nothing can be handed off there"),
    ("wal_level", "without `logical` the log does not hold what a stream needs, and the daemon polls"),
    ("replication slots", "without a free slot the daemon polls"),
    ("wal senders", "without a free sender the daemon polls"),
    (
        "max_slot_wal_keep_size",
        "it bounds the log that a slot retains while no daemon runs; below our budget the server takes the slot away first",
    ),
    (
        "idle_replication_slot_timeout",
        "the server takes the slot away from a daemon that is down for longer, and the tables are compared afterwards",
    ),
    ("disk for the log", "a slot may retain as much log as its budget; a full disk stops the whole server"),
    ("clocks", "times in the logs of two machines compare only if their clocks agree"),
    ("replication", "the role needs REPLICATION to stream; until then the daemon polls"),
    ("frontier", "a transaction that stays open holds certificates, vacuum and the slot back"),
    (
        "prepared transactions",
        "a prepared transaction that was forgotten holds certificates, vacuum and the slot back",
    ),
    ("migrations", "a build works with the tables and gates of its own migrations"),
    ("role", "the daemon needs the gates of gov_handoff_worker, and should have no more"),
    (
        "shape",
        "the gates read and write the live tables as they are, and reject every row if a column does not fit",
    ),
    ("schemas", "who may create objects where gates look them up could run code with the gates' rights"),
    ("triggers", "a trigger on a table that the gates write to runs inside the gates"),
    (
        "trigger routes",
        "a trigger that writes to the queue without a route is an emitter that nobody has registered",
    ),
    ("trace columns", "without causation_id a chain of events cannot be followed"),
    ("sources", "a source that cannot be read is not handed off"),
    (
        "row security",
        "a policy on a source hides rows from the role; until it is exempt, reading the source is an error",
    ),
    (
        "publication",
        "a publication that does not carry the sources as they are defined would lose rows to the stream",
    ),
    ("slot", "the stream is read from this slot"),
    (
        "slot retention",
        "a slot that nobody reads, or that lags, makes the server keep its log until the disk is full",
    ),
    ("slots not in use", "a slot that nobody reads makes the server keep its log until the disk is full"),
    ("worker", "while the intake does not run, nothing is handed off"),
    ("open id ranges", "each pass looks into every open range; very many make passes slow"),
    ("event types", "signals of an inactive type wait in event_pending"),
    ("dead letters", "the row of an open dead letter is not handed off"),
    ("findings", "an open finding is something that the daemon could not put right by itself"),
    ("executors", "an executor without a heartbeat claims no jobs, so its jobs wait"),
    ("workers", "a worker that does not run leaves its part of the work undone"),
    ("connections", "a process that gets no connection does not start"),
    ("first to break", "what runs out first, so that somebody looks before it does"),
];

/// Why a check matters; empty for a name that is none.
#[must_use]
pub fn why(check: &str) -> &'static str {
    CHECKS.iter().find(|(name, _)| *name == check).map_or("", |(_, why)| why)
}

/// The table of the documentation.
#[must_use]
pub fn table() -> String {
    let mut out = "| check | why it matters |\n|---|---|\n".to_owned();
    for (name, why) in CHECKS {
        out += &format!("| {name} | {why} |\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regenerate the table with `gov-handoff doctor --table`.
    #[test]
    fn the_documentation_lists_every_check_as_it_is_declared() {
        let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operating.md"));
        assert!(file.unwrap().contains(&table()), "docs/operating.md is out of date");
    }

    #[test]
    fn a_check_is_listed_once() {
        for (n, (name, why)) in CHECKS.iter().enumerate() {
            assert!(!why.is_empty() && !why.ends_with('.') && why.len() < 160, "{name}");
            assert!(CHECKS[..n].iter().all(|(other, _)| other != name), "{name}");
        }
    }
}
