//! The pure core: values in, decisions out. No clock, no network, no SQL, no randomness, no logging.

pub mod batch_size;
pub mod captured_by;
pub mod certificate;
pub mod coalesce;
pub mod conservation;
pub mod continuity;
pub mod dead_letter;
pub mod definition;
pub mod doctor;
pub mod exposition;
pub mod finding;
pub mod frontier;
pub mod group;
pub mod handoff;
pub mod id_ranges;
pub mod identity;
pub mod instance;
pub mod lag;
pub mod lease;
pub mod lsn;
pub mod mode;
pub mod pace;
pub mod payload;
pub mod pgoutput;
pub mod probe;
pub mod repair;
pub mod retry;
pub mod row;
pub mod rule;
#[cfg(test)]
mod samples;
pub mod stream_state;
pub mod time;
pub mod transaction;
pub mod watermark;
