//! The one integration test binary; each module's comment says what it proves.
//!
//! Run it by plain `cargo test`: all tests then share one process and so one PostgreSQL ([`support`]). A runner
//! that gives each test a process of its own, as `cargo nextest` does, starts a cluster for each.

// What the tests stand on: the shared cluster, fresh databases.
mod support;

// The private PostgreSQL itself: versions, restarts, crashes, and that nothing is left behind.
mod embedded;

// The module directions of ARCHITECTURE.md.
mod architecture;

// No loss and no duplicate while daemon, slot, server and network fail: seeded writers, seeded faults, a set comparison.
mod hostile;
