//! The stable codes of errors, in one table: what each means and what to do. `docs/errors.md` is generated from it.
//!
//! A code is for people and scripts that look a message up. It has four digits: the first two name the [`Kind`], and so the
//! policy; the last two the case. A code that ends in `00` stands for every case of its kind that has none of its own. The
//! SQLSTATEs that our gates raise (`GH001` and so on) have three digits; each has a code here. A code is never given a
//! second meaning: `issued.txt` lists all that were ever given.

use super::{Kind, LEASE_LOST, Policy, RANGES_CHANGED, REDEFINED, REFUSED};
use tokio_postgres::error::SqlState;

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    pub id: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    /// The SQLSTATE for which the code stands, if it stands for one.
    pub state: Option<&'static str>,
    pub means: &'static str,
    pub what_to_do: &'static str,
}

macro_rules! codes {
    ($($name:ident = $id:literal, $kind:ident $(, state $state:expr)?; $means:literal, $todo:literal;)*) => {
        $(pub static $name: Code = Code {
            id: $id, name: stringify!($name), kind: Kind::$kind, state: codes!(@state $($state)?),
            means: $means, what_to_do: $todo,
        };)*
        /// All codes in their order.
        pub static CODES: &[&Code] = &[$(&$name),*];
    };
    (@state) => { None };
    (@state $state:expr) => { Some($state) };
}

codes! {
    CONFIG = "GH1000", Config;
        "A setting, a file or an argument is wrong.",
        "Correct what the message names. `gov-handoff config` shows the settings in force.";
    URL_UNREADABLE = "GH1001", Config;
        "The connection string cannot be read, or names an unknown option.",
        "Write `postgres://user:password@host:5432/database`, with the special characters of the password percent-encoded.";
    URL_CONTRADICTION = "GH1002", Config;
        "Two options of the connection contradict each other.",
        "Take one of the two out. Nothing is guessed where encryption is concerned.";
    NOT_HONOURED = "GH1003", Config;
        "An option or a `PG` variable of libpq is set that this program cannot honour.",
        "Unset it, or give one of the values that the message lists. `docs/configuration.md` lists all of them.";
    PASSWORD_FILE = "GH1004", Config;
        "The password file cannot be read, or others may read it.",
        "Correct its name, or run `chmod 600` on it. Each line is `host:port:database:user:password`.";
    SERVICE_FILE = "GH1005", Config;
        "The service is not defined, or its file cannot be read.",
        "Define it in the file that `PGSERVICEFILE` names, in `~/.pg_service.conf`, or in `pg_service.conf` under `PGSYSCONFDIR`.";
    CERTIFICATE_FILE = "GH1006", Config;
        "A file with certificates or a private key is missing, unreadable, or readable by others.",
        "Correct the path in `sslrootcert`, `sslcert` or `sslkey`. A private key must belong to you and have the mode 0600.";
    LISTEN = "GH1007", Config;
        "The address for metrics and probes cannot be listened on.",
        "Choose another `listen`; each instance on one machine needs a port of its own.";
    UNKNOWN_SETTING = "GH1008", Config;
        "A variable that begins with `GOV_HANDOFF_`, or a key of the configuration file, is not a setting.",
        "Correct its name. The message suggests the nearest one.";
    COMMAND_LINE = "GH1009", Config;
        "The command line cannot be read.",
        "See `gov-handoff COMMAND --help`, or the man page of the command.";
    DEFINITION = "GH1010", Config;
        "The definition of a source or of its rules is wrong.",
        "Correct the file of sources and run `gov-handoff sources check` on it.";
    SESSION_SETTINGS = "GH1011", Config;
        "The server, or a pooler before it, did not grant the settings that a session asked for.",
        "Connect to the server itself, or let the pooler pass them on. Without them rows could be missed without an error.";
    NOT_AN_EXECUTOR = "GH1012", Config;
        "The name is not a kind of executor, or it is MOT, which is never one.",
        "Take one of the kinds that the message lists. MOT enqueues graphs of jobs by `fn_mot_graph_emit`, and claims none.";
    CONNECTION = "GH1100", Connection;
        "The server cannot be reached, or the connection broke.",
        "Is the server running, and is the address right? A daemon connects again by itself.";
    NO_ANSWER = "GH1101", Connection;
        "The server, or what stands before it, did not answer in time.",
        "Look for a firewall, a proxy or an overloaded server. A daemon tries again by itself.";
    AUTHENTICATION = "GH1200", Authentication;
        "The server does not let this user in.",
        "Check user, password and database of the connection.";
    WRONG_PASSWORD = "GH1201", Authentication, state "28P01";
        "The password is wrong, or the user does not exist.",
        "Check user and password; also `PGPASSWORD`, `PGPASSFILE` and `~/.pgpass`.";
    NOT_ADMITTED = "GH1202", Authentication, state "28000";
        "The server has no entry in `pg_hba.conf` for this user, database, address and encryption.",
        "Have the entry added, or connect with another `sslmode`, user or address.";
    NO_DATABASE = "GH1203", Authentication, state "3D000";
        "The database does not exist.",
        "Create it, or correct the name in the connection.";
    PRIVILEGE = "GH1300", Privilege;
        "The role lacks a privilege.",
        "Make it a member of the role that the message names. `docs/operating.md` lists which command needs which role.";
    REPLICATION = "GH1400", Replication;
        "Logical replication is not available: `wal_level`, slot, publication, or the connection's options.",
        "Run `gov-handoff doctor`. Until then the daemon polls, and nothing is lost.";
    CATALOGUE = "GH1500", Catalogue;
        "A table, column, type or function is missing, or does not fit.",
        "Run `gov-handoff doctor` and `gov-handoff sources check`.";
    NOT_MIGRATED = "GH1501", Catalogue;
        "The objects of gov-handoff are not in this database.",
        "Run `gov-handoff migrate` first, or correct the database of the connection.";
    TRANSIENT = "GH1600", Transient;
        "The server could not do it now: a deadlock, a timeout, a shutdown, or a resource that is used up.",
        "Try again. A daemon does so by itself.";
    SLOW_READ = "GH1601", SlowRead;
        "A read of a source took longer than `read_timeout`, and was ended.",
        "The daemon reads smaller parts by itself. If it stays, look for load, or raise `read_timeout`.";
    SOURCE_LOCKED = "GH1602", SourceLocked;
        "Another session holds a lock on a source, or waits for one; the read gave way.",
        "Nothing, if a migration of the source is running. The daemon reads again afterwards.";
    DATA = "GH1700", Data;
        "The database rejected the data itself.",
        "The daemon sets such a row aside. See `gov-handoff dlq list`.";
    LEASE_IS_LOST = "GH1801", LeaseLost, state LEASE_LOST;
        "Another instance holds the lease, or it has expired. Nothing was written.",
        "Nothing: the instance stands by. If it happens often, look for pauses of the machine or the network.";
    RANGES_HAVE_CHANGED = "GH1802", RangesChanged, state RANGES_CHANGED;
        "Another reader changed the open ranges meanwhile. Nothing was written.",
        "Nothing: the rows are read again.";
    REFUSED_ON_PURPOSE = "GH1803", Refused, state REFUSED;
        "The request is refused on purpose.",
        "The message says why, and what would be accepted.";
    IS_REDEFINED = "GH1804", Redefined, state REDEFINED;
        "The definition that mapped a row is no longer in force. Nothing was written.",
        "Nothing: the rows are mapped again.";
    NO_SUCH_JOB = "GH1805", Refused;
        "No job has this id or this key.",
        "`gov-handoff jobs list` shows the jobs; an id or a key is given in full.";
    NO_SUCH_EXECUTOR = "GH1806", Refused;
        "No executor is registered under this id.",
        "`gov-handoff executors list` shows those that are; `gov-handoff executors register` adds one.";
    NO_SUCH_EVENT = "GH1807", Refused;
        "No event has this id.",
        "`gov-handoff events tail --json` shows the ids of events. An event that was only captured has none until its type is active.";
    NO_SUCH_ACTOR = "GH1808", Refused;
        "No subscription names this actor, it belongs to no group, and it has read nothing.",
        "Look for a typing mistake; `gov-handoff subscriptions list` shows actors. An actor becomes known when a consumer first reads as it.";
    NO_SUCH_SCHEDULE = "GH1809", Refused;
        "No schedule has this name.",
        "`gov-handoff schedules list` shows those that there are; `gov-handoff schedules apply FILE` makes them.";
    INTERNAL = "GH1900", Internal;
        "A bug of this program, or of the server.",
        "Report it with the message and the version. Nothing is lost: what was not recorded is read again.";
}

/// The code of an SQLSTATE, or else of a kind.
pub(super) fn of(kind: Kind, state: Option<&SqlState>) -> &'static Code {
    let by_state =
        CODES.iter().find(|c| c.kind == kind && c.state.is_some() && c.state == state.map(SqlState::code));
    // The first of a kind stands for all that have none of their own; a test holds that there is one.
    let by_kind = || CODES.iter().find(|c| c.kind == kind);
    by_state.or_else(by_kind).copied().unwrap_or(&INTERNAL)
}

/// The page of the documentation.
#[must_use]
pub fn page() -> String {
    let mut out = include_str!("page.md").to_owned();
    for code in CODES {
        let policy = match code.kind.policy() {
            Policy::Retry => "tries again",
            Policy::SetAside => "sets the row aside",
            Policy::StandBy => "stands by",
            Policy::Stop => "reports it as something that an operator has to mend",
        };
        let state = code.state.map_or_else(String::new, |state| format!(" SQLSTATE `{state}`."));
        let (id, means, todo, exit) = (code.id, code.means, code.what_to_do, code.kind.exit_code());
        out += &format!(
            "\n## {id}\n\n{means}{state}\n\n*What to do:* {todo}\n\nA command ends with exit code {exit}; the daemon {policy}.\n"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_a_code_that_begins_it() {
        for code in CODES {
            let first = of(code.kind, None);
            assert_eq!(first.kind, code.kind);
            assert_eq!(first.id[..4], code.id[..4], "{} is not among its kind", code.id);
        }
        let gates = super::super::GATE_STATES;
        for (state, kind) in gates {
            assert_eq!(of(kind, Some(&SqlState::from_code(state))).state, Some(state));
        }
    }

    #[test]
    fn a_code_is_given_once_and_keeps_its_meaning() {
        let issued: Vec<_> = include_str!("issued.txt").lines().filter(|l| !l.starts_with('#')).collect();
        let ids: BTreeSet<_> = issued.iter().map(|line| line.split(' ').next()).collect();
        assert_eq!(ids.len(), issued.len(), "a code is listed twice");
        for code in CODES {
            let line = format!("{} {}", code.id, code.name);
            assert!(issued.contains(&&*line), "add `{line}` to issued.txt, which only grows");
            assert!(code.id.len() == 6 && code.id.starts_with("GH1"), "{}", code.id);
        }
        let unique: BTreeSet<_> = CODES.iter().map(|c| c.id).collect();
        assert_eq!(unique.len(), CODES.len());
    }

    /// Regenerate the page with `gov-handoff explain > docs/errors.md`.
    #[test]
    fn the_documentation_lists_every_code_as_it_is_declared() {
        let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md"));
        assert!(file.unwrap_or_default() == page(), "docs/errors.md is out of date");
    }
}
