//! One error type for the whole program, and the one table that says what to do about each kind.
//!
//! Messages are lowercase without a full stop, so that `a: b: c` reads well. They say what was expected, what was found
//! and what to do. A server's message about data is never repeated, because it may quote a row.

pub mod codes;
mod convert;
mod states;

pub use states::{GATE_STATES, LEASE_LOST, RANGES_CHANGED, REDEFINED, REFUSED, classify};

use codes::Code;
use std::fmt;
use tokio_postgres::error::SqlState;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A setting, file or argument is wrong.
    Config,
    /// The server cannot be reached, or the connection broke.
    Connection,
    /// Wrong user, password or database.
    Authentication,
    /// A privilege is missing.
    Privilege,
    /// Logical replication is not available: `wal_level`, slots, publication.
    Replication,
    /// A table, column or type does not fit the definition or the gates.
    Catalogue,
    /// The server could not do it now: deadlock, timeout, shutdown, or out of a resource.
    Transient,
    /// A read of a source exceeded its time limit and was ended.
    SlowRead,
    /// Another session holds a lock on a source, or waits for one, and the read gave way.
    SourceLocked,
    /// The database rejected the data itself: a poison row.
    Data,
    /// Another instance holds the lease, or it has expired.
    LeaseLost,
    /// Another reader changed the open ranges.
    RangesChanged,
    /// Rows were mapped by a definition that is no longer in force.
    Redefined,
    /// The request is refused on purpose.
    Refused,
    /// A bug of ours.
    Internal,
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Back off and try the same again.
    Retry,
    /// Set the row aside (stage it, or record a dead letter) and continue.
    SetAside,
    /// Give up the role of writer and wait for the lease.
    StandBy,
    /// Stop and tell the operator.
    Stop,
}

impl Kind {
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::Connection
            | Self::Transient
            | Self::SlowRead
            | Self::SourceLocked
            | Self::RangesChanged
            | Self::Redefined => Policy::Retry,
            Self::Data => Policy::SetAside,
            Self::LeaseLost => Policy::StandBy,
            Self::Config
            | Self::Authentication
            | Self::Privilege
            | Self::Replication
            | Self::Catalogue
            | Self::Refused
            | Self::Internal => Policy::Stop,
        }
    }

    /// 1: refused on purpose; 2: could not run.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        if self == Self::Refused { 1 } else { 2 }
    }
}

#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    context: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The SQLSTATE, if the server gave one.
    pub code: Option<String>,
    /// The violated constraint, if the server named one.
    pub constraint: Option<String>,
    /// The error concerns only the source that was being read; see [`Error::of_source`].
    pub of_source: bool,
    /// A code of its own, if the place where the error arose gave it one; see [`Error::stable_code`].
    case: Option<&'static Code>,
}

impl Error {
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        let context = context.into();
        Self { kind, context, source: None, code: None, constraint: None, of_source: false, case: None }
    }

    /// An error of a certain case, and so of its kind.
    pub fn of(case: &'static Code, context: impl Into<String>) -> Self {
        Self { case: Some(case), ..Self::new(case.kind, context) }
    }

    /// The code by which people and scripts look the error up; see [`codes`].
    #[must_use]
    pub fn stable_code(&self) -> &'static Code {
        // The kind may have changed since the case was given: a cancelled statement turned out to be a slow read.
        let case = self.case.filter(|case| case.kind == self.kind);
        case.unwrap_or_else(|| codes::of(self.kind, self.state().as_ref()))
    }

    /// The message with its code in front, as it is printed and logged.
    #[must_use]
    pub fn told(&self) -> Told<'_> {
        Told(self)
    }

    pub fn config(context: impl Into<String>) -> Self {
        Self::new(Kind::Config, context)
    }

    /// Adds what was being done. The innermost cause stays last.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.context = format!("{doing}: {}", self.context);
        self
    }

    #[must_use]
    pub fn policy(&self) -> Policy {
        self.kind.policy()
    }

    /// The SQLSTATE, for comparison with the driver's constants.
    #[must_use]
    pub fn state(&self) -> Option<SqlState> {
        self.code.as_deref().map(SqlState::from_code)
    }

    /// The server says that its storage is damaged.
    fn of_damage(&self) -> bool {
        matches!(self.state(), Some(SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED))
    }

    /// For a statement that reads a source. The server ended it because of a timeout or a lock, or an operator
    /// cancelled it. The same SQLSTATE of another statement says nothing about the source.
    #[must_use]
    pub fn of_a_read(mut self) -> Self {
        match self.state() {
            Some(SqlState::QUERY_CANCELED) => self.kind = Kind::SlowRead,
            Some(SqlState::LOCK_NOT_AVAILABLE) => self.kind = Kind::SourceLocked,
            _ => {}
        }
        self
    }

    /// The server ended the statement: it exceeded its timeout, or somebody cancelled it.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        self.code.as_deref() == Some(SqlState::QUERY_CANCELED.code())
    }

    /// As [`of_a_read`](Self::of_a_read), for a statement that touches one source. An error about that source is no
    /// reason to stop reading the others. Errors about the session, the transaction or the server's resources, and
    /// errors that a gate raised, do not count as errors of the source.
    #[must_use]
    pub fn of_source(self) -> Self {
        let mut e = self.of_a_read();
        e.of_source = match e.code.as_deref() {
            Some(code) => !["08", "25", "26", "28", "53", "57P", "GH"].iter().any(|c| code.starts_with(c)),
            None => matches!(e.kind, Kind::Catalogue | Kind::Privilege),
        };
        e
    }

    /// For a statement that reads a source: whether the error is about the contents of some rows, so that the other
    /// rows can still be read. That is a value that cannot be sent (class 22), or damaged storage.
    #[must_use]
    pub fn of_contents(&self) -> bool {
        self.code.as_deref().is_some_and(|code| code.starts_with("22")) || self.of_damage()
    }

    /// Whether the error is about the row and not about the server or the daemon: the database rejected it, or a gate
    /// refused it on purpose.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Refused)
    }

    /// Whether the error may be about the row, or about the gate that the row went through. A trigger may raise any
    /// error, and a function that it calls may be missing for some rows only. The caller has to find out whether the
    /// gate works at all. Damaged storage is not included: no row causes it.
    #[must_use]
    pub fn may_be_poison(&self) -> bool {
        let told = self.code.is_some() && !self.of_damage();
        told && matches!(self.kind, Kind::Catalogue | Kind::Internal)
    }

    /// What may be stored about a rejected row: never the server's own message, which may quote the row.
    #[must_use]
    pub fn about_row(&self) -> String {
        match &self.code {
            Some(code) if self.kind != Kind::Refused => refused(code, self.constraint.as_deref()),
            _ => self.to_string(),
        }
    }
}

/// See [`Error::told`].
pub struct Told<'a>(&'a Error);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.stable_code().id, self.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|s| &**s as _)
    }
}

/// Adds what was being done to any error that converts to ours.
pub trait Context<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|e| e.into().context(doing))
    }
}

fn refused(code: &str, constraint: Option<&str>) -> String {
    match constraint {
        Some(constraint) => format!("refused by the database ({code}, constraint {constraint})"),
        None => format!("refused by the database ({code})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_trigger_may_raise_is_asked_about() {
        let told = |code: &str| {
            let kind = classify(&SqlState::from_code(code));
            Error { code: Some(code.to_owned()), ..Error::new(kind, "said: secret") }
        };
        for code in ["42P01", "42883", "42000", "XX000"] {
            assert!(told(code).may_be_poison() && !told(code).is_poison(), "{code}");
        }
        for code in ["42501", "XX001", "XX002", "57014", "40001", LEASE_LOST, RANGES_CHANGED, "08006"] {
            assert!(!told(code).may_be_poison() && !told(code).is_poison(), "{code}");
        }
        assert!(!Error::new(Kind::Internal, "ours").may_be_poison());
        assert_eq!(told("42883").about_row(), "refused by the database (42883)");
    }

    #[test]
    fn what_the_server_says_of_one_source_concerns_that_source_only() {
        let read = |code: &str| {
            let kind = classify(&SqlState::from_code(code));
            Error { code: Some(code.to_owned()), ..Error::new(kind, "said") }.of_source().of_source
        };
        for code in ["42501", "55P03", "42703", "22P05", "57014", "XX001", "58P01"] {
            assert!(read(code), "{code}");
        }
        for code in ["08006", "57P01", "25P02", "26000", "53200", LEASE_LOST, REDEFINED] {
            assert!(!read(code), "{code}");
        }
        assert!(!Error::new(Kind::Connection, "no answer").of_source().of_source);
    }

    #[test]
    fn context_reads_from_the_outside_in() {
        let e = Error::config("unknown key").context("reading the file");
        assert_eq!(e.to_string(), "reading the file: unknown key");
    }
}
