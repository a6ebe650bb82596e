//! Errors of the driver, of files and of JSON as errors of ours. A server's message about data is not repeated.

use super::{Error, Kind, classify, codes, refused};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
