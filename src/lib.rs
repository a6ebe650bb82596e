//! Hands every row born in a PostgreSQL registry to governance: durably, exactly once, provably without loss.
//!
//! ```text
//!   source ──▶ map ──▶ coalesce ──▶ apply ──▶ acknowledge
//!   (stream,   (core::  (core::     (store,    (slot and ranges,
//!    keyset,    handoff) coalesce)   one        only what is
//!    frontier)                       commit)    durable)
//! ```
//!
//! Values move right; only an acknowledged position moves left. [`core`] is pure; [`store`] owns every statement of SQL;
//! [`source`] delivers rows; [`intake`] is the daemon; [`workers`] audit; [`observe`] tells onlookers how they fare;
//! [`cli`] turns arguments into calls. [`instance`] is this process among its like. [`embedded`] is a private
//! PostgreSQL for the demo and the tests.

pub mod cli;
pub mod config;
pub mod core;
pub mod embedded;
pub mod error;
pub mod instance;
pub mod intake;
pub mod observe;
pub mod source;
pub mod store;
pub mod workers;
