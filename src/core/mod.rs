//! The pure part: values in, decisions out. No I/O, no clock, no randomness, no logging, no environment.

pub mod group;
pub mod lease;
pub mod lsn;
pub mod pgoutput;
pub mod retry;
pub mod time;
