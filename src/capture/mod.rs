//! Three ways in, side by side. Each finds rows and hands them to [`crate::handoff`].
//!
//! | way | reads | finds |
//! |---|---|---|
//! | [`stream`] | the replication slot | what was committed, within milliseconds |
//! | [`keyset`] | the open id ranges of a table | rows whose ids no path has seen, in whatever order they commit |
//! | [`frontier`] | all rows of a table not older than the frontier | everything else, and the proof |
//!
//! [`stream`] has a lane of its own. [`table_lane`] gives each table its turns: the open ranges often, the frontier
//! once a minute. [`reconcile`] explains the rows that either of them finds behind a stream.

pub mod frontier;
pub mod keyset;
pub mod reconcile;
pub mod shared;
pub mod stream;
pub mod table_lane;
pub mod turn;
