//! The keeper: renews the lease, says how we are, watches slot, lag, load and the other workers, notices redefined sources,
//! drains what was captured, writes the audit row and the heartbeat. None of it is on the path of a row.

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::core::definition::SourceDefinition;
use crate::core::handoff::Source;
use crate::core::lease::{claim_patience, keeper_patience};
use crate::error::{Error, Kind, Policy, Result};
use crate::intake::guard::{self, SlotGuard};
use crate::intake::lag::LagWatch;
use crate::intake::pacer::Pacer;
use crate::intake::standby::look_around;
use crate::intake::unused::{self, UnusedSlots};
use crate::intake::{Shared, open, open_claimant};
use crate::store::Store;
use crate::store::lease::{Claim, EXPIRED, Lease};
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
    // Kept over sessions: what was said and what is due does not depend on them.
    let mut rounds = Rounds::new(&shared.config);
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
            Ok(store) => tend(&shared, &mut rounds, store.within(keeper_patience(ttl))).await,
            Err(e) => Err(e),
        };
        // It worked for as long as a lease lasts: the next fault is a new one.
        if asked.elapsed() > ttl {
            pause.reset();
        }
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
        Claim::Held { lease, .. } if lease.term == *term => Ok(store),
        Claim::Held { .. } | Claim::Taken(_) => Err(Error::new(Kind::LeaseLost, EXPIRED)),
    }
}

/// What the keeper looks at.
struct Rounds {
    guard: SlotGuard,
    unused: UnusedSlots,
    lag: LagWatch,
    pacer: Pacer,
    audit: Audit,
    beat_due: Instant,
    renewed: Option<Instant>,
    /// The sources as they were last read.
    known: Option<Vec<Reading>>,
    complaints: Complaints,
}

/// Rounds until the session or the lease is gone. The renewal comes first and is the only thing that ends them: whatever else
/// does not work is said, tried again in the next round, and keeps nothing after it from being done.
async fn tend(shared: &Shared, rounds: &mut Rounds, store: Store) -> Result<()> {
    let config = &shared.config;
    let mut mode = shared.mode.subscribe();
    rounds.renewed = None;
    loop {
        let due = rounds.is_due(config);
        if due {
            rounds.renew(&store, shared).await?;
        }
        let repaced = rounds.look(&store, shared).await?;
        let news = mode.has_changed().unwrap_or(false) || repaced;
        mode.mark_unchanged();
        if news {
            rounds.renew(&store, shared).await?;
        }
        if news || due {
            rounds.chores(&store, shared).await?;
        }
        if stays(shared) && rounds.beat_due <= Instant::now() {
            rounds.beat_due = Instant::now() + config.heartbeat_interval;
            rounds.complaints.tolerate("emit the heartbeat", store.heartbeat(&shared.lease).await)?;
        }
        tokio::select! {
            _ = mode.changed() => mode.mark_changed(),
            () = tokio::time::sleep(TICK.min(config.lease_ttl / 4)) => {}
        }
    }
}

/// What did not work last time, and why: each cause is said once, and its end too.
#[derive(Default)]
struct Complaints(HashMap<&'static str, String>);

impl Complaints {
    /// What does not work out of the watching is said, and stops neither the renewal nor the rest. Losing the lease or the
    /// connection is another matter.
    fn tolerate<T>(&mut self, what: &'static str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(e) if e.kind == Kind::Connection => Err(e),
            result => self.tolerate_others(what, result),
        }
    }

    /// The same for a session that is not the keeper's own: only losing the lease is grave.
    fn tolerate_others<T>(&mut self, what: &'static str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => {
                if self.0.remove(what).is_some() {
                    tracing::info!("could {what} again");
                }
                Ok(Some(value))
            }
            Err(e) if e.policy() == Policy::StandBy => Err(e),
            Err(e) => {
                let cause = e.to_string();
                if self.0.get(what) != Some(&cause) {
                    tracing::warn!(error = %e, "could not {what}");
                    self.0.insert(what, cause);
                }
                Ok(None)
            }
        }
    }
}

/// Whether somebody should miss us: a single run, or a rehearsal, is not silent when it has ended.
fn stays(shared: &Shared) -> bool {
    !shared.once && shared.config.worker != REHEARSAL
}

impl Rounds {
    fn new(config: &Config) -> Self {
        Self {
            guard: SlotGuard::default(),
            unused: UnusedSlots::default(),
            lag: LagWatch::new(&config.worker),
            pacer: Pacer::new(&config.worker),
            audit: Audit { due: Instant::now() + config.audit_interval, seen: HashMap::new() },
            beat_due: Instant::now() + config.heartbeat_interval,
            renewed: None,
            known: None,
            complaints: Complaints::default(),
        }
    }

    /// Slot, lag and load; whether the pace has changed.
    async fn look(&mut self, store: &Store, shared: &Shared) -> Result<bool> {
        let excess = self.guard.watch(store, shared).await;
        if let Some(bytes) = self.complaints.tolerate("look at the slot", excess)?.flatten() {
            // It may take as long as a walsender takes to let go.
            let gave_up = self.renewing(store, shared, guard::give_up(shared, bytes)).await?;
            let said = self.guard.gave_up(store, shared, bytes, &gave_up).await;
            self.complaints.tolerate("say that the slot is held", said)?;
            self.complaints.tolerate_others("give the slot up", gave_up)?;
        }
        let excess = self.unused.watch(store, shared).await;
        for slot in
            self.complaints.tolerate("look at the slots that are not in use", excess)?.unwrap_or_default()
        {
            let gave_up = self.renewing(store, shared, unused::give_up(shared, &slot)).await?;
            let said = self.unused.gave_up(store, shared, &slot, &gave_up).await;
            self.complaints.tolerate("say that an unused slot is held", said)?;
            self.complaints.tolerate_others("give an unused slot up", gave_up)?;
        }
        let sources: Vec<_> = self.known.iter().flatten().map(|(d, ..)| d.name.clone()).collect();
        let lag = self.lag.look(store, shared, &sources).await;
        self.complaints.tolerate("measure the lag", lag)?;
        let repaced = self.pacer.look(store, shared).await;
        Ok(self.complaints.tolerate("look at the load", repaced)?.unwrap_or(false))
    }

    /// What is due as often as a renewal.
    async fn chores(&mut self, store: &Store, shared: &Shared) -> Result<()> {
        let now = definitions(store, shared).await;
        if let Some(now) = self.complaints.tolerate("read the sources", now)? {
            let before = self.known.replace(now);
            if before.is_some() && before != self.known {
                shared.definitions.send_modify(|n| *n += 1);
            }
        }
        self.drain(store, shared).await?;
        let audited = self.audit.tick(store, shared).await;
        self.complaints.tolerate("write the audit rows", audited)?;
        look_around(store).await
    }

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
        let waiting = store.drainable().await;
        let waiting = self.complaints.tolerate("see what can be drained", waiting)?.unwrap_or_default();
        if waiting.is_empty() {
            return Ok(());
        }
        let opening = open(&shared.config, "gov-handoff drain");
        // What becomes of this session is no reason to give up the keeper's, and the lease with it.
        let opened = self.renewing(store, shared, opening).await?;
        let Some(drainer) = self.complaints.tolerate_others("open a session to drain", opened)? else {
            return Ok(());
        };
        let lease = Some(&shared.lease);
        for event_type in waiting {
            // What is wrong with one type, or one row of it, holds up no other.
            loop {
                let chunk = drainer.drain(lease, &event_type, DRAIN_CHUNK);
                let drained = self.renewing(store, shared, chunk).await?;
                let Some(drained) = self.complaints.tolerate_others("drain", drained)? else { break };
                if drained.refused > 0 {
                    let refused = drained.refused;
                    tracing::warn!(event_type, refused, "captured rows refused, staged for a retry");
                }
                if drained.is_empty() {
                    break;
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

/// What the lanes read a source by: its definition, which columns' types are rendered apart, and which the server may test.
/// The latter two change when somebody alters a column's type.
type Reading = (SourceDefinition, BTreeSet<String>, BTreeSet<String>);

async fn definitions(store: &Store, shared: &Shared) -> Result<Vec<Reading>> {
    let sources = store.registered(&shared.config.worker).await?.sources;
    let reading = |s: &Arc<Source>| (s.definition.clone(), s.cast_apart.clone(), s.plain_text.clone());
    Ok(sources.iter().map(reading).collect())
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
/// passed first come from `GOV_HANDOFF_FAILPOINT=name:count`; with `:stop` behind it the process is stopped, not killed.
#[cfg(debug_assertions)]
pub fn failpoint(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    static PLAN: OnceLock<Option<(String, AtomicI64, bool)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = crate::config::failpoint()?;
        let (name, count) = text.split_once(':')?;
        let stop = count.strip_suffix(":stop");
        let left = AtomicI64::new(stop.unwrap_or(count).parse().ok()?);
        Some((name.to_owned(), left, stop.is_some()))
    });
    if let Some((wanted, left, stop)) = plan
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        if *stop {
            // The shell's own `kill`, because sending signals needs unsafe code here.
            let kill = format!("kill -STOP {}", std::process::id());
            let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
            return;
        }
        // As abrupt as a kill: no destructor, no farewell to the server.
        std::process::abort();
    }
}
