//! The sole owner of SQL. Every statement is in `sql/<subject>/`, named like its module. Every write goes through a
//! gate. The [`role`] of a [`Session`] says what it can do: look on, read sources, write, administer.

pub mod apply;
pub mod audit;
pub mod backlog;
pub mod candidates;
pub mod connect;
pub mod dead_letter;
pub mod doctor;
pub mod events;
pub mod executors;
pub mod feed;
pub mod findings;
pub mod frontier;
pub mod full_audit;
mod give_way;
pub mod input_gate;
pub mod job_lanes;
pub mod job_metrics;
pub mod job_queue;
pub mod jobs;
pub mod lease;
pub mod metrics;
pub mod migrate;
pub mod overview;
pub mod proof;
pub mod queue_tick;
pub mod quote;
pub mod read;
pub mod replication;
pub mod retry;
pub mod role;
pub mod rules;
pub mod scan;
pub mod schedules;
mod session;
pub mod session_settings;
pub mod source;
pub mod status;
pub mod stream;
pub mod subscription;
mod tls;
pub mod trace;
pub mod trust;
pub mod types;
mod value;
pub mod watch;
pub mod worker;

pub use session::Session;

/// A session that only reads source tables.
pub type Reader = Session<role::Reader>;
/// A session that only writes through the gates.
pub type Writer = Session<role::Writer>;
/// A session that does both: the retry lane, the audit, commands.
pub type Store = Session<role::ReadWriter>;
