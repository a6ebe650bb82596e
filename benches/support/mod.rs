//! What the benchmark stands on.

pub mod backlog;
pub mod latency;
pub mod options;
pub mod passes;
pub mod process;
pub mod report;
pub mod sweep;
pub mod world;
