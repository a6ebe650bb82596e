//! Looks at the server's load and at how much is dirtied, and sets the pace of the lanes.
//!
//! It belongs to the keeper and never waits for a lane, nor a lane for it: the lease is renewed at its own time whatever
//! the pace is.

use crate::core::pace::{Cause, Governor, Load};
use crate::error::Result;
use crate::intake::Shared;
use crate::intake::flag::Flag;
use crate::store::Store;
use crate::store::watch::Dirtied;
use serde_json::json;
use std::time::{Duration, Instant};

/// How often to look; a tick, in which so many groups are dirtied, is this long.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct Pacer {
    governor: Governor,
    looked_at: Option<Instant>,
    before: Option<Dirtied>,
    storm: Flag,
    throttled: Flag,
    deferred: Flag,
}

impl Pacer {
    pub fn new(worker: &str) -> Self {
        Self {
            governor: Governor::default(),
            looked_at: None,
            before: None,
            storm: Flag::new("group_invalidation_storm", worker),
            throttled: Flag::new("handoff_throttled", worker),
            deferred: Flag::new("handoff_deferred", worker),
        }
    }

    /// True if the pace has changed.
    pub async fn look(&mut self, store: &Store, shared: &Shared) -> Result<bool> {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(false);
        }
        self.looked_at = Some(Instant::now());
        let config = &shared.config;
        let server = store.server_load().await?;
        let dirtied = store.dirtied(&config.worker, self.before.as_ref()).await?;
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        let load = Load {
            blocked_by_us: positive(server.blocked_by_us),
            lock_waits: positive(server.lock_waits),
            standby_lag: server.standby_lag.map(positive),
            slowest_read: shared.slowest_read(),
            dirtied: positive(dirtied.dirtied),
            groups: positive(dirtied.groups),
        };
        self.before = Some(dirtied);
        let minute = u16::try_from(server.minute).unwrap_or(0);
        let pace = self.governor.decide(&load, &config.pace, Instant::now(), minute);
        let detail = || json!({ "worker": config.worker, "reason": pace.reason() });
        self.storm.set(store, pace.is_storm().then(|| ("warning", detail()))).await?;
        let loaded = pace.causes.iter().any(|c| !matches!(c, Cause::Storm { .. }));
        self.throttled.set(store, loaded.then(|| ("warning", detail()))).await?;
        let waits = pace.deferred.is_some() && pace.causes.is_empty();
        self.deferred.set(store, waits.then(|| ("info", detail()))).await?;
        let reason = pace.reason();
        // News is what reads differently: a lag that grows by a few bytes at each look is none.
        let changed = shared.pace.send_if_modified(|now| std::mem::replace(now, pace).reason() != reason);
        if changed {
            tracing::info!(pace = reason.as_deref().unwrap_or("full"), "the pace changed");
        }
        Ok(changed)
    }
}
