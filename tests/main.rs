//! The one integration test binary; each module's comment says what it proves.
//!
//! Run it by plain `cargo test`: all tests then share one process and so one PostgreSQL ([`support`]). A runner
//! that gives each test a process of its own, as `cargo nextest` does, starts a cluster for each.

// What the tests stand on: the shared cluster, fresh databases.
mod support;

// The private PostgreSQL itself: versions, restarts, crashes, and that nothing is left behind.
mod embedded;

// What a stranger sees first: the demo ends with a verdict that holds, and the verdict can fail.
mod demo;

// The module directions of ARCHITECTURE.md.
mod architecture;
