//! The keeper: renews the lease, says how we are, watches slot, lag, load and the other workers, notices redefined sources,
//! drains what was captured, writes the audit row and the heartbeat. None of it is on the path of a row.

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::core::definition::SourceDefinition;
use crate::core::lease::{claim_patience, keeper_patience};
use crate::error::{Error, Kind, Policy, Result};
use crate::intake::guard::SlotGuard;
use crate::intake::lag::LagWatch;
use crate::intake::pacer::Pacer;
use crate::intake::standby::look_around;
use crate::intake::{Shared, open, open_claimant};
use crate::store::Store;
use crate::store::lease::{Claim, Lease};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the slot is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Captured handoffs moved per statement, small enough to leave the lanes alone.
const DRAIN_CHUNK: i32 = 5_000;

/// Runs until the lease is lost; the supervisor ends it otherwise. `session` is the one that claimed the lease.
pub async fn keep(shared: Arc<Shared>, session: Store) -> Result<()> {
    let mut pause = crate::intake::pause::Pause::up_to(shared.config.lease_ttl / 4);
    let (mut open, mut unanswered) = (Some(session), 0);
    loop {
        let asked = Instant::now();
        let claimed = match open.take() {
            Some(store) => Ok(store),
            None => reclaim(&shared, unanswered).await,
        };
        let ttl = shared.config.lease_ttl;
        let silent = claimed.is_err() && asked.elapsed() >= claim_patience(ttl, unanswered);
        unanswered = if silent { unanswered + 1 } else { 0 };
        let ended = match claimed {
            Ok(store) => tend(&shared, store.within(keeper_patience(ttl))).await,
            Err(e) => Err(e),
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
async fn reclaim(shared: &Shared, unanswered: u32) -> Result<Store> {
    let store = open_claimant(&shared.config, unanswered).await?;
    let Lease { worker, owner, term } = &shared.lease;
    match store.claim_lease(worker, owner, shared.config.lease_ttl).await? {
        Claim::Held(lease) if lease.term == *term => Ok(store),
        Claim::Held(_) | Claim::Taken(_) => Err(Error::new(Kind::LeaseLost, "the lease was taken over")),
    }
}

/// What the keeper looks at.
struct Rounds {
    guard: SlotGuard,
    lag: LagWatch,
    pacer: Pacer,
    audit: Audit,
    beat_due: Instant,
    renewed: Option<Instant>,
}

async fn tend(shared: &Shared, store: Store) -> Result<()> {
    let config = &shared.config;
    let mut mode = shared.mode.subscribe();
    let mut known = definitions(&store, shared).await?;
    let mut rounds = Rounds {
        guard: SlotGuard::default(),
        lag: LagWatch::new(&config.worker),
        pacer: Pacer::new(&config.worker),
        audit: Audit { due: Instant::now() + config.audit_interval, seen: HashMap::new() },
        beat_due: Instant::now() + config.heartbeat_interval,
        renewed: None,
    };
    loop {
        rounds.guard.watch(&store, shared).await?;
        let sources: Vec<_> = known.iter().map(|d| d.0.name.clone()).collect();
        tolerate("measure the lag", rounds.lag.look(&store, shared, &sources).await)?;
        let repaced = tolerate("look at the load", rounds.pacer.look(&store, shared).await)?.unwrap_or(false);
        let news = mode.has_changed().unwrap_or(false) || repaced;
        mode.mark_unchanged();
        if news || rounds.is_due(config) {
            rounds.renew(&store, shared).await?;
            let now = definitions(&store, shared).await?;
            if now != known {
                known = now;
                shared.definitions.send_modify(|n| *n += 1);
            }
            rounds.drain(&store, shared).await?;
            rounds.audit.tick(&store, shared).await?;
            look_around(&store).await?;
        }
        if stays(shared) && rounds.beat_due <= Instant::now() {
            rounds.beat_due = Instant::now() + config.heartbeat_interval;
            store.heartbeat(&shared.lease).await?;
        }
        tokio::select! {
            _ = mode.changed() => mode.mark_changed(),
            () = tokio::time::sleep(TICK.min(config.lease_ttl / 4)) => {}
        }
    }
}

/// What does not work out of the watching is said, and stops neither the renewal nor the rest. Losing the lease or the
/// connection is another matter.
fn tolerate<T>(what: &str, result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.policy() == Policy::StandBy || e.kind == Kind::Connection => Err(e),
        Err(e) => {
            tracing::warn!(error = %e, "could not {what}");
            Ok(None)
        }
    }
}

/// The same for a session that is not the keeper's own: only losing the lease is grave.
fn not_ours(what: &str, e: Error) -> Result<()> {
    if e.policy() == Policy::StandBy {
        return Err(e);
    }
    tracing::warn!(error = %e, "could not {what}");
    Ok(())
}

/// Whether somebody should miss us: a single run, or a rehearsal, is not silent when it has ended.
fn stays(shared: &Shared) -> bool {
    !shared.once && shared.config.worker != REHEARSAL
}

impl Rounds {
    /// A worker ticks at this cadence whether there is work or not; a third of the lease, so that one lost tick is none.
    fn cadence(config: &Config) -> Duration {
        config.lease_ttl / 3
    }

    fn is_due(&self, config: &Config) -> bool {
        self.renewed.is_none_or(|at| at.elapsed() >= Self::cadence(config))
    }

    async fn renew(&mut self, store: &Store, shared: &Shared) -> Result<()> {
        store.renew_lease(&shared.lease, &self.report(shared)).await?;
        self.renewed = Some(Instant::now());
        Ok(())
    }

    /// Much may have been captured by the time a type is activated: the lease is renewed meanwhile. The chunks have a
    /// session of their own, because one may take longer than the keeper waits for an answer.
    async fn drain(&mut self, store: &Store, shared: &Shared) -> Result<()> {
        let waiting = store.drainable().await?;
        if waiting.is_empty() {
            return Ok(());
        }
        let opening = open(&shared.config, "gov-handoff drain");
        // What becomes of this session is no reason to give up the keeper's, and the lease with it.
        let drainer = match self.renewing(store, shared, opening).await? {
            Ok(drainer) => drainer,
            Err(e) => return not_ours("drain", e),
        };
        for event_type in waiting {
            loop {
                match self.renewing(store, shared, drainer.drain(&event_type, DRAIN_CHUNK)).await? {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) => return not_ours("drain", e),
                }
            }
        }
        Ok(())
    }

    /// Waits for something that is none of the keeper's own, and renews the lease as long as it takes.
    async fn renewing<T>(
        &mut self,
        store: &Store,
        shared: &Shared,
        work: impl Future<Output = Result<T>>,
    ) -> Result<Result<T>> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(Self::cadence(&shared.config)) => self.renew(store, shared).await?,
            }
        }
    }

    fn report(&self, shared: &Shared) -> Value {
        let (config, mode) = (&shared.config, shared.mode.borrow());
        let mut report = json!({
            "mode": mode.name(),
            "mode_reason": mode.reason(),
            "slot": config.slot,
            "slot_retained": self.guard.retained,
            "slot_budget": config.wal_budget,
            "slot_rate": self.guard.rate,
            "lag_ms": u64::try_from(self.lag.lag.as_millis()).unwrap_or(u64::MAX),
            "pace_reason": shared.pace.borrow().reason(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        if stays(shared) {
            report["cadence_ms"] =
                json!(u64::try_from(Self::cadence(config).as_millis()).unwrap_or(u64::MAX));
        }
        report
    }
}

/// What the lanes read the sources by: the definitions, and which columns' types are rendered apart. The latter changes
/// when somebody alters a column's type.
async fn definitions(store: &Store, shared: &Shared) -> Result<Vec<(SourceDefinition, BTreeSet<String>)>> {
    let sources = store.sources(&shared.config.worker).await?;
    Ok(sources.iter().map(|s| (s.definition.clone(), s.cast_apart.clone())).collect())
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
        for source in store.source_status(&shared.config.worker).await? {
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
