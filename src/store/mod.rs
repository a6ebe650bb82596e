//! The sole owner of SQL. Every statement stands in `sql/<subject>/`, next to the module of the same name; every write goes
//! through a function gate. A [`Session`] can do what its [`role`] says: look on, read sources, write, administer.

pub mod apply;
pub mod audit;
pub mod connect;
pub mod dead_letter;
pub mod doctor;
pub mod findings;
pub mod frontier;
mod give_way;
pub mod lease;
pub mod metrics;
pub mod migrate;
pub mod proof;
pub mod quote;
pub mod read;
pub mod replication;
pub mod retry;
pub mod role;
mod session;
pub mod settings;
pub mod source;
pub mod status;
pub mod stream;
mod tls;
pub mod trust;
pub mod types;
mod value;
pub mod watch;

pub use session::Session;

/// The session of callers that do not say yet which part is theirs.
pub type Store = Session<role::Worker>;

/// Names from before the modules were split by subject, for callers that still use them.
pub use source as cursor;
pub use source::catalogue;

/// As `cursor`: what callers import from here stands in [`frontier`] and [`read`].
pub mod rows {
    pub use super::frontier::{FrontierRead, Relation, Snapshot};
    pub use super::read::{BATCH_BYTES, Bound, Depth, Found, Span};
}
