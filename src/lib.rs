//! Hands every row born in a PostgreSQL registry to governance: durably, exactly once, provably without loss.
//!
//! ```text
//!   capture ──▶ map ──▶ coalesce ──▶ deliver ──▶ acknowledge
//!   (stream,   (core::  (core::      (handoff,   (slot and ranges,
//!    keyset,    handoff) coalesce)    one         only what is
//!    frontier)                        commit)     durable)
//! ```
//!
//! Values move right; only an acknowledged position moves left. From the bottom up: [`core`] is pure; [`store`] owns every
//! statement of SQL; [`handoff`] is what becomes of a row; [`queue`] is the client of the job queue, for other programs; [`daemon`] is the frame that workers run on; [`capture`] has the
//! three ways in; [`workers`] put them together. [`audit`] compares everything with everything. [`observe`] shows onlookers
//! how the daemon fares. [`cli`] turns arguments into calls. [`embedded`] is a private PostgreSQL for the demo and the
//! tests. No module imports one above it; `tests/architecture.rs` keeps it so.

pub mod audit;
pub mod capture;
pub mod cli;
pub mod config;
pub mod core;
pub mod daemon;
pub mod embedded;
pub mod error;
pub mod failpoint;
pub mod handoff;
pub mod instance;
pub mod meter;
pub mod observe;
pub mod pulse;
pub mod queue;
pub mod store;
pub mod workers;
