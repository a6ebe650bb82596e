//! The one harness of the tests: servers, databases, the daemon, the command line, and waits.
//!
//! | module | subject |
//! |---|---|
//! | [`cluster`] | the shared PostgreSQL of the test process, and private ones |
//! | [`database`] | a fresh database for each test, and small questions to it |
//! | [`adopted`] | a database that has the live system's tables and nothing of ours |
//! | [`fixture`] | source rows that come to every kind of handoff |
//! | [`sources`] | sources in TOML, written by a test |
//! | [`file`] | temporary files |
//! | [`command`] | the program as a person runs it |
//! | [`daemon`] | `gov-handoff run` as a child process |
//! | [`log`] | the lines that a child process has logged |
//! | [`picture`] | a picture of a terminal, for the README |
//! | [`wait`] | waits for a condition |
//! | [`stream`] | waits for the mode and the replication slot |
//! | [`model`] | what the candidate store should hold, in Rust that shares nothing with the product |
//! | [`verdict`] | which committed rows are handed off, in SQL that shares nothing with the product |
//! | [`writers`] | random transactions from several connections |
//! | [`random`] | the seeded generator |

pub mod adopted;
mod cluster;
mod command;
mod daemon;
mod database;
mod file;
pub mod fixture;
mod log;
mod model;
pub mod picture;
mod random;
pub mod sources;
mod stream;
mod verdict;
mod wait;
mod writers;

pub use cluster::{blocking, cluster, connect, options, private_cluster};
pub use command::{Ran, cli, cli_with, cli_within, done, program, signal};
pub use daemon::Daemon;
pub use database::{
    Database, active, active_as, active_of, active_on, fresh_database, migrated, number, text, texts,
};
pub use file::TemporaryFile;
pub use log::Log;
pub use model::candidate_store_equals_model;
pub use random::{Random, seed};
pub use verdict::until_all_handed_off;
pub use wait::{PATIENCE, until, until_true, within};
pub use writers::under_writers;
