//! One error type for the whole program, and the one table that says what to do about each kind.
//!
//! Messages are lowercase without a full stop, so that `a: b: c` reads well. They say what was expected, what was found
//! and what to do. A server's message about data is never repeated, because it may quote a row.

pub mod codes;

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

impl From<tokio_postgres::Error> for Error {
    fn from(e: tokio_postgres::Error) -> Self {
        let Some(db) = e.as_db_error() else {
            let kind = if is_broken(&e) { Kind::Connection } else { Kind::Internal };
            let text = chain(&e);
            return Self { source: Some(Box::new(e)), ..Self::new(kind, text) };
        };
        let kind = classify(db.code());
        let context = match kind {
            // The message may quote a value of the row.
            Kind::Data => refused(db.code().code(), db.constraint()),
            // The server says what is denied, but not which role would be allowed.
            Kind::Privilege if db.hint().is_none() => format!(
                "{}; the daemon's role must be a member of gov_handoff_worker, an operator's of gov_handoff_operator, \
                 and migrate needs a superuser, or the owner of database and tables with CREATEROLE",
                db.message()
            ),
            _ => match db.hint() {
                Some(hint) => format!("{} ({hint})", db.message()),
                None => db.message().to_owned(),
            },
        };
        let (code, constraint) = (Some(db.code().code().to_owned()), db.constraint().map(str::to_owned));
        Self { code, constraint, source: Some(Box::new(e)), ..Self::new(kind, context) }
    }
}

fn refused(code: &str, constraint: Option<&str>) -> String {
    match constraint {
        Some(constraint) => format!("refused by the database ({code}, constraint {constraint})"),
        None => format!("refused by the database ({code})"),
    }
}

/// Another instance holds the lease, or the term is over.
pub const LEASE_LOST: &str = "GH001";
/// Another writer changed the open id ranges.
pub const RANGES_CHANGED: &str = "GH002";
/// What was asked for is refused on purpose.
pub const REFUSED: &str = "GH003";
/// The definition that mapped a row is no longer in force.
pub const REDEFINED: &str = "GH004";

/// The SQLSTATEs of our own gates. A test compares them with what the migrations raise.
pub const GATE_STATES: [(&str, Kind); 4] = [
    (LEASE_LOST, Kind::LeaseLost),
    (RANGES_CHANGED, Kind::RangesChanged),
    (REFUSED, Kind::Refused),
    (REDEFINED, Kind::Redefined),
];

/// The table from SQLSTATE to kind. A state that it does not name is about the data: bad values, violated constraints,
/// and errors that triggers, routines and views of other owners raise about a row, with SQLSTATEs of their own.
#[must_use]
pub fn classify(state: &SqlState) -> Kind {
    let code = state.code();
    if let Some((_, kind)) = GATE_STATES.iter().find(|(ours, _)| *ours == code) {
        return *kind;
    }
    match *state {
        SqlState::INSUFFICIENT_PRIVILEGE => Kind::Privilege,
        SqlState::UNDEFINED_DATABASE => Kind::Authentication,
        // A trigger of the live tables writes to another server, which cannot be reached.
        SqlState::FDW_UNABLE_TO_ESTABLISH_CONNECTION => Kind::Transient,
        _ => match &code[..2.min(code.len())] {
            "08" => Kind::Connection,
            "28" => Kind::Authentication,
            // About the session, the transaction, the server's resources or its configuration; never about the row.
            "25" | "26" | "40" | "53" | "55" | "57" | "58" | "72" | "F0" => Kind::Transient,
            "42" => Kind::Catalogue,
            "XX" => Kind::Internal,
            _ => Kind::Data,
        },
    }
}

/// Whether a session broke. The driver also reports as I/O errors what it could not encode, such as a value that is too
/// large, or could not parse. Then the connection still works, and a retry would fail the same way.
fn is_broken(e: &tokio_postgres::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(e);
    while let Some(c) = cause {
        if let Some(io) = c.downcast_ref::<std::io::Error>() {
            // A received message that cannot be read (for example by TLS) makes the session useless. A message that we
            // cannot send does not.
            return io.kind() == std::io::ErrorKind::InvalidData || io_kind(io) == Kind::Connection;
        }
        cause = c.source();
    }
    e.is_closed()
}

/// What an I/O error is about: socket errors concern the connection; the others concern a file, or the data that we
/// tried to send.
fn io_kind(e: &std::io::Error) -> Kind {
    use std::io::ErrorKind as Io;
    match e.kind() {
        Io::ConnectionRefused
        | Io::ConnectionReset
        | Io::ConnectionAborted
        | Io::NotConnected
        | Io::BrokenPipe
        | Io::TimedOut
        | Io::UnexpectedEof
        | Io::HostUnreachable
        | Io::NetworkUnreachable
        | Io::NetworkDown
        | Io::AddrNotAvailable => Kind::Connection,
        Io::NotFound | Io::PermissionDenied | Io::AddrInUse => Kind::Config,
        _ => Kind::Internal,
    }
}

/// The causes of an error in one line.
fn chain(e: &dyn std::error::Error) -> String {
    let mut out = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        let text = c.to_string();
        if !out.contains(&text) {
            out = format!("{out}: {text}");
        }
        cause = c.source();
    }
    out
}

impl From<crate::core::rule::DefinitionError> for Error {
    fn from(e: crate::core::rule::DefinitionError) -> Self {
        let text = e.to_string();
        Self { source: Some(Box::new(e)), ..Self::of(&codes::DEFINITION, text) }
    }
}

impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Self {
        let text = e.to_string();
        Self { source: Some(Box::new(e)), ..Self::new(Kind::Internal, text) }
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        let (kind, text) = (io_kind(&e), e.to_string());
        Self { source: Some(Box::new(e)), ..Self::new(kind, text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_policy() {
        for (code, policy) in [
            ("40P01", Policy::Retry),
            ("57P01", Policy::Retry),
            ("53300", Policy::Retry),
            ("23514", Policy::SetAside),
            ("22P02", Policy::SetAside),
            ("54000", Policy::SetAside),
            ("P0001", Policy::SetAside),
            ("QL001", Policy::SetAside),
            ("20000", Policy::SetAside),
            ("27000", Policy::SetAside),
            ("0A000", Policy::SetAside),
            ("26000", Policy::Retry),
            (LEASE_LOST, Policy::StandBy),
            (RANGES_CHANGED, Policy::Retry),
            (REFUSED, Policy::Stop),
            (REDEFINED, Policy::Retry),
            ("28P01", Policy::Stop),
            ("42501", Policy::Stop),
            ("42P01", Policy::Stop),
        ] {
            assert_eq!(classify(&SqlState::from_code(code)).policy(), policy, "{code}");
        }
    }

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
    fn an_io_error_is_about_the_connection_only_if_it_is() {
        use std::io::ErrorKind as Io;
        for (kind, ours) in [
            (Io::ConnectionReset, Kind::Connection),
            (Io::BrokenPipe, Kind::Connection),
            (Io::UnexpectedEof, Kind::Connection),
            (Io::NotFound, Kind::Config),
            (Io::PermissionDenied, Kind::Config),
            // For example a value that is too large to send.
            (Io::InvalidInput, Kind::Internal),
            (Io::InvalidData, Kind::Internal),
        ] {
            assert_eq!(Error::from(std::io::Error::new(kind, "said")).kind, ours, "{kind:?}");
        }
    }

    #[test]
    fn context_reads_from_the_outside_in() {
        let e = Error::config("unknown key").context("reading the file");
        assert_eq!(e.to_string(), "reading the file: unknown key");
    }
}
