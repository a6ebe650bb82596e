//! The frame that every worker runs on.
//!
//! ```text
//!   standby ── claims the lease ──▶ supervisor ─┬─ lanes    the worker's own tasks
//!      ▲                                        └─ keeper   renews, reports, beats, makes the worker's rounds
//!      └───────────── lease lost ───────────────┘
//! ```
//!
//! [`supervisor`] takes the lease and runs a [`supervisor::Worker`] under it; [`standby`] waits for the lease; [`keeper`]
//! renews it. A [`term::Term`] is one holding of the lease. The other modules are parts that a worker puts together: the
//! [`retry`] lane, the [`pacer`], the [`lag`] watch, the [`slot_guard`]. The [`service_manager`] is told how the process fares. Nothing here knows how a row is captured.

pub mod backoff;
pub mod complaints;
pub mod drain_captures;
pub mod finding_flag;
pub mod keeper;
pub mod lag;
pub mod open_session;
pub mod pacer;
pub mod pages;
pub mod retry;
pub mod service_manager;
pub mod slot_guard;
pub mod standby;
pub mod stream_progress;
pub mod supervisor;
pub mod term;
pub mod unused_slots;
