//! The daemon's sessions, each bounded by the time of a lease. A server that does not answer for that long counts as
//! gone, just as other instances then count this one as gone.

use crate::config::Config;
use crate::core::lease::{claim_patience, statement_patience, writer_patience};
use crate::error::Result;
use crate::store::role::Admin;
use crate::store::{Session, Store, Writer, connect};
use std::time::Duration;

pub async fn open(config: &Config, name: &str) -> Result<Writer> {
    Ok(open_worker(config, name).await?.into_role())
}

/// As [`open`], for a session that also reads sources.
pub async fn open_worker(config: &Config, name: &str) -> Result<Store> {
    connect::open_within(&config.target, name, patience(config)).await
}

/// As [`open`], with the role that manages the slot.
pub async fn open_replication(config: &Config) -> Result<Session<Admin>> {
    connect::open_admin_within(&config.replication, "gov-handoff replication", patience(config)).await
}

/// As [`open`], for a session that applies batches. `cancelled`: how many such sessions ended because the server
/// cancelled a batch that took too long; each makes the next session wait longer.
pub async fn open_writer(config: &Config, name: &str, cancelled: u32) -> Result<Writer> {
    connect::open_writer_within(&config.target, name, writer_patience(config.lease_ttl, cancelled)).await
}

/// A session that asks for the lease. `unanswered`: how many such sessions got no answer.
pub async fn open_claimant(config: &Config, unanswered: u32) -> Result<Writer> {
    let wait = claim_patience(config.lease_ttl, unanswered);
    connect::open_claimant(&config.target, "gov-handoff keeper", wait, patience(config)).await
}

pub fn patience(config: &Config) -> Duration {
    statement_patience(config.lease_ttl)
}
