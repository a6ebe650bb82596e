//! The keeper: renews the lease, says how we are, notices redefined sources, drains what was captured, writes the audit
//! row. None of it is on the path of a row.

use crate::core::definition::SourceDefinition;
use crate::error::{Error, Kind, Policy, Result};
use crate::intake::guard::SlotGuard;
use crate::intake::{Shared, open};
use crate::store::Store;
use crate::store::lease::{Claim, Lease};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the slot is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Captured handoffs moved per statement, small enough to leave the lanes alone.
const DRAIN_CHUNK: i32 = 5_000;

/// Runs until the lease is lost; the supervisor ends it otherwise. `session` is the one that claimed the lease.
pub async fn keep(shared: Arc<Shared>, session: Store) -> Result<()> {
    let mut pause = crate::intake::pause::Pause::up_to(shared.config.lease_ttl / 4);
    let mut open = Some(session);
    loop {
        let ended = match open.take() {
            Some(store) => tend(&shared, store).await,
            None => match reclaim(&shared).await {
                Ok(store) => tend(&shared, store).await,
                Err(e) => Err(e),
            },
        };
        match ended {
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            Err(e) => tracing::warn!(error = %e, "the lease could not be renewed"),
            Ok(()) => {}
        }
        tokio::time::sleep(pause.next()).await;
    }
}

/// A new session in place of one that broke, claiming again what is still ours if nobody has taken it meanwhile.
async fn reclaim(shared: &Shared) -> Result<Store> {
    let store = open(&shared.config, "gov-handoff keeper").await?;
    let Lease { worker, owner, term } = &shared.lease;
    match store.claim_lease(worker, owner, shared.config.lease_ttl).await? {
        Claim::Held(lease) if lease.term == *term => Ok(store),
        Claim::Held(_) | Claim::Taken(_) => Err(Error::new(Kind::LeaseLost, "the lease was taken over")),
    }
}

async fn tend(shared: &Shared, store: Store) -> Result<()> {
    let mut mode = shared.mode.subscribe();
    let mut known = definitions(&store, shared).await?;
    let mut audit = Audit { due: Instant::now() + shared.config.audit_interval, seen: HashMap::new() };
    let mut guard = SlotGuard::default();
    let mut renewed: Option<Instant> = None;
    loop {
        guard.watch(&store, shared).await?;
        if mode.has_changed().unwrap_or(false)
            || renewed.is_none_or(|at| at.elapsed() >= shared.config.lease_ttl / 3)
        {
            mode.mark_unchanged();
            store.renew_lease(&shared.lease, &report(shared, &guard)).await?;
            renewed = Some(Instant::now());
            let now = definitions(&store, shared).await?;
            if now != known {
                known = now;
                shared.definitions.send_modify(|n| *n += 1);
            }
            for event_type in store.drainable().await? {
                while store.drain(&event_type, DRAIN_CHUNK).await? > 0 {}
            }
            audit.tick(&store, shared).await?;
        }
        tokio::select! {
            _ = mode.changed() => mode.mark_changed(),
            () = tokio::time::sleep(TICK.min(shared.config.lease_ttl / 4)) => {}
        }
    }
}

async fn definitions(store: &Store, shared: &Shared) -> Result<Vec<SourceDefinition>> {
    Ok(store.sources(&shared.config.worker).await?.iter().map(|s| s.definition.clone()).collect())
}

fn report(shared: &Shared, guard: &SlotGuard) -> Value {
    let mode = shared.mode.borrow();
    json!({
        "mode": mode.name(),
        "mode_reason": mode.reason(),
        "slot_retained": guard.retained,
        "slot_budget": shared.config.wal_budget,
        "slot_rate": guard.rate,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// One audit row per interval and source that saw rows.
struct Audit {
    due: Instant,
    seen: HashMap<String, i64>,
}

impl Audit {
    async fn tick(&mut self, store: &Store, shared: &Shared) -> Result<()> {
        if self.due > Instant::now() {
            return Ok(());
        }
        self.due = Instant::now() + shared.config.audit_interval;
        let status = store.status(&shared.config.worker, &shared.config.slot).await?;
        for source in status.sources {
            let before = self.seen.insert(source.source.clone(), source.rows_seen).unwrap_or(0);
            if source.rows_seen > before {
                store.audit_note(&shared.lease, &source.source, "handoff_audit").await?;
            }
        }
        Ok(())
    }
}

/// Kills this process at a named place, for the tests that show that nothing is lost there. The place and how often it is
/// passed first come from `GOV_HANDOFF_FAILPOINT=name:count`.
#[cfg(debug_assertions)]
pub fn failpoint(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    static PLAN: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = crate::config::failpoint()?;
        let (name, count) = text.split_once(':')?;
        Some((name.to_owned(), AtomicI64::new(count.parse().ok()?)))
    });
    if let Some((wanted, left)) = plan
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        // As abrupt as a kill: no destructor, no farewell to the server.
        std::process::abort();
    }
}
