//! Hands every row born in a PostgreSQL registry to governance: durably, exactly once, provably without loss.

pub mod embedded;
