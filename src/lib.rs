//! x

pub mod core;
