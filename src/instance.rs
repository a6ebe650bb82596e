//! This process among all that work on the database: a name that no other process has, and the names of its sessions.

use crate::core::instance;
use std::sync::OnceLock;
use uuid::Uuid;

/// The owner of every lease that this process claims.
#[must_use]
pub fn owner() -> &'static str {
    static OWNER: OnceLock<String> = OnceLock::new();
    OWNER.get_or_init(|| instance::owner(&host(), std::process::id(), Uuid::new_v4()))
}

/// What a session is called in `pg_stat_activity`.
#[must_use]
pub fn application(what: &str) -> String {
    instance::application(what, owner())
}

/// Only for people to read; uniqueness does not depend on it.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "host".to_owned() } else { name.to_owned() }
}
