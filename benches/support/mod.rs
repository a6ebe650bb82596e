//! What the benchmark stands on.

pub mod backlog;
pub mod family;
pub mod jobs;
pub mod latency;
pub mod options;
pub mod passes;
pub mod process;
pub mod report;
pub mod scan;
pub mod sweep;
pub mod unread;
pub mod world;
