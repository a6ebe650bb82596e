//! One error for the whole program, and the one table that says what to do about each kind of it.
//!
//! Messages are lowercase without a full stop, so that `a: b: c` reads well, and say what was expected, what was found and
//! what to do. A server's message about data is never repeated: it may quote a row.

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
    /// Logical replication cannot be had: `wal_level`, slots, publication.
    Replication,
    /// A table, column or type is not as the definition or the gates need it.
    Catalogue,
    /// The server could not do it now: deadlock, timeout, shutdown, out of something.
    Transient,
    /// A read of a source took longer than it may, and was ended.
    SlowRead,
    /// Somebody holds a lock on a source, and reading gave way.
    SourceLocked,
    /// The data itself is refused: a poison row.
    Data,
    /// Another instance has the lease.
    LeaseLost,
    /// Another reader moved the open id ranges.
    RangesChanged,
    /// Rows were mapped by a definition that is no longer in force.
    Redefined,
    /// Asked for something that is refused on purpose.
    Refused,
    /// A bug of ours.
    Internal,
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Back off and try the same again.
    Retry,
    /// Set the row aside and go on.
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

    /// 1: a finding (refused on purpose); 2: could not run.
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
    /// SQLSTATE, where a server gave one.
    pub code: Option<String>,
    /// The constraint that was violated, where the server named one.
    pub constraint: Option<String>,
    /// It concerns the source that was being read and nothing else; see [`Error::of_source`].
    pub of_source: bool,
}

impl Error {
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None, code: None, constraint: None, of_source: false }
    }

    pub fn config(context: impl Into<String>) -> Self {
        Self::new(Kind::Config, context)
    }

    /// Says what was being done; the innermost cause stays last.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.context = format!("{doing}: {}", self.context);
        self
    }

    #[must_use]
    pub fn policy(&self) -> Policy {
        self.kind.policy()
    }

    /// The SQLSTATE, to be compared with the driver's constants.
    #[must_use]
    pub fn state(&self) -> Option<SqlState> {
        self.code.as_deref().map(SqlState::from_code)
    }

    /// The server says that its storage is damaged.
    fn of_damage(&self) -> bool {
        matches!(self.state(), Some(SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED))
    }

    /// Of a statement that reads a source: the server ended it for its time or for a lock, or somebody did by hand. The same state from
    /// another statement says nothing about the source.
    #[must_use]
    pub fn of_a_read(mut self) -> Self {
        match self.state() {
            Some(SqlState::QUERY_CANCELED) => self.kind = Kind::SlowRead,
            Some(SqlState::LOCK_NOT_AVAILABLE) => self.kind = Kind::SourceLocked,
            _ => {}
        }
        self
    }

    /// The server ended a statement: it took longer than it was given, or somebody wanted it ended.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        self.code.as_deref() == Some(SqlState::QUERY_CANCELED.code())
    }

    /// As [`of_a_read`](Self::of_a_read), of a statement that touches one source: what the server says of it is no reason to
    /// leave the other sources alone. Not what it says of the session, the transaction or its own means, and not what a gate
    /// says.
    #[must_use]
    pub fn of_source(self) -> Self {
        let mut e = self.of_a_read();
        e.of_source = match e.code.as_deref() {
            Some(code) => !["08", "25", "26", "28", "53", "57P", "GH"].iter().any(|c| code.starts_with(c)),
            None => matches!(e.kind, Kind::Catalogue | Kind::Privilege),
        };
        e
    }

    /// Of a statement that reads a source: whether it is about what some rows hold, so that the others can be read without
    /// them. A value that cannot be sent (class 22), or damaged storage.
    #[must_use]
    pub fn of_contents(&self) -> bool {
        self.code.as_deref().is_some_and(|code| code.starts_with("22")) || self.of_damage()
    }

    /// Whether it is about the row, and not about the server or us: refused by the database, or by a gate on purpose.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Refused)
    }

    /// Whether it may be about the row, or about the gate that the row went through: a trigger may raise whatever it likes,
    /// and what it calls may be missing for some rows only. Whoever asks has to find out whether the gate works at all.
    /// Not what the server says of damaged storage: no row is to blame for that.
    #[must_use]
    pub fn may_be_poison(&self) -> bool {
        let told = self.code.is_some() && !self.of_damage();
        told && matches!(self.kind, Kind::Catalogue | Kind::Internal)
    }

    /// What may be kept about a row that was refused: never a server's own words, which may quote the row.
    #[must_use]
    pub fn about_row(&self) -> String {
        match &self.code {
            Some(code) if self.kind != Kind::Refused => refused(code, self.constraint.as_deref()),
            _ => self.to_string(),
        }
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

/// Adds what was being done to any error that can become ours.
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
            return Self {
                kind,
                context: chain(&e),
                source: Some(Box::new(e)),
                code: None,
                constraint: None,
                of_source: false,
            };
        };
        let kind = classify(db.code());
        let context = match kind {
            // The message may quote a value of the row.
            Kind::Data => refused(db.code().code(), db.constraint()),
            // The server says what is denied, not who may.
            Kind::Privilege if db.hint().is_none() => format!(
                "{}; the daemon's role must be a member of gov_handoff_worker, an operator's of gov_handoff_operator, \
                 and migrate wants a superuser, or the owner of database and tables with CREATEROLE",
                db.message()
            ),
            _ => match db.hint() {
                Some(hint) => format!("{} ({hint})", db.message()),
                None => db.message().to_owned(),
            },
        };
        let (code, constraint) = (Some(db.code().code().to_owned()), db.constraint().map(str::to_owned));
        Self { kind, context, code, constraint, source: Some(Box::new(e)), of_source: false }
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

/// The states of our own gates. A test compares them with what the migrations raise.
pub const GATE_STATES: [(&str, Kind); 4] = [
    (LEASE_LOST, Kind::LeaseLost),
    (RANGES_CHANGED, Kind::RangesChanged),
    (REFUSED, Kind::Refused),
    (REDEFINED, Kind::Redefined),
];

/// The table from SQLSTATE to kind. What it does not name is about the data: bad values and broken constraints, and whatever
/// triggers, foreign routines and views of others raise about a row, codes of their own making included.
#[must_use]
pub fn classify(state: &SqlState) -> Kind {
    let code = state.code();
    if let Some((_, kind)) = GATE_STATES.iter().find(|(ours, _)| *ours == code) {
        return *kind;
    }
    match *state {
        SqlState::INSUFFICIENT_PRIVILEGE => Kind::Privilege,
        SqlState::UNDEFINED_DATABASE => Kind::Authentication,
        // Another server, which a trigger of the live tables writes to, cannot be reached.
        SqlState::FDW_UNABLE_TO_ESTABLISH_CONNECTION => Kind::Transient,
        _ => match &code[..2.min(code.len())] {
            "08" => Kind::Connection,
            "28" => Kind::Authentication,
            // The session, the transaction, the server's means or its configuration; never the row.
            "25" | "26" | "40" | "53" | "55" | "57" | "58" | "72" | "F0" => Kind::Transient,
            "42" => Kind::Catalogue,
            "XX" => Kind::Internal,
            _ => Kind::Data,
        },
    }
}

/// Whether a session broke. The driver also wraps in I/O errors what it could not encode, such as a value that is too large, or
/// could not parse: the connection is as good as before, and trying again would end the same.
fn is_broken(e: &tokio_postgres::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(e);
    while let Some(c) = cause {
        if let Some(io) = c.downcast_ref::<std::io::Error>() {
            // What arrives and cannot be read, by TLS for one, makes the session useless; what we cannot send does not.
            return io.kind() == std::io::ErrorKind::InvalidData || io_kind(io) == Kind::Connection;
        }
        cause = c.source();
    }
    e.is_closed()
}

/// What an I/O error is about: the system's word on a socket is about the connection; the rest is about a file, or about what we
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
        Self {
            kind: Kind::Config,
            context: e.to_string(),
            source: Some(Box::new(e)),
            code: None,
            constraint: None,
            of_source: false,
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Self {
        Self {
            kind: Kind::Internal,
            context: e.to_string(),
            source: Some(Box::new(e)),
            code: None,
            constraint: None,
            of_source: false,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self {
            kind: io_kind(&e),
            context: e.to_string(),
            source: Some(Box::new(e)),
            code: None,
            constraint: None,
            of_source: false,
        }
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
            // Such as a value that is too large to be sent.
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
