//! This process among all that work on the database: a name that no other process has, and the names of its sessions.

use crate::core::instance;
use std::sync::OnceLock;
use uuid::Uuid;

/// The owner of every lease that a command of this process claims.
#[must_use]
pub fn owner() -> &'static str {
    static OWNER: OnceLock<String> = OnceLock::new();
    OWNER.get_or_init(|| named(unique()))
}

/// The owner of a worker's lease. Each worker of the daemon has its own.
#[must_use]
pub fn owner_of(worker: &str) -> String {
    named(instance::of_worker(unique(), worker))
}

/// What a session is called in `pg_stat_activity`. `owner` is the worker's that opens it, if it is one's.
#[must_use]
pub fn application(what: &str, owner: Option<&str>) -> String {
    instance::application(what, owner.unwrap_or_else(|| self::owner()))
}

fn unique() -> Uuid {
    static UNIQUE: OnceLock<Uuid> = OnceLock::new();
    *UNIQUE.get_or_init(Uuid::new_v4)
}

fn named(unique: Uuid) -> String {
    instance::owner(&host(), std::process::id(), unique)
}

/// Only for people to read; uniqueness does not depend on it.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "host".to_owned() } else { name.to_owned() }
}
