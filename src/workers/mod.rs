//! Workers beside the intake, each resumable and under a lease of its own.

pub mod audit;
