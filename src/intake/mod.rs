//! The daemon: takes the lease, runs the lanes, follows the mode, drains and resigns.
//!
//! Four tasks share one lease. The *stream* lane reads the slot and decides the mode; the *keyset* lane reads the tables,
//! for latency while there is no stream and to reconcile while there is; the *retry* lane gives refused rows their further
//! chances; the *keeper* renews the lease and says how we are. Each lane has its own connections and is started over, with backoff, from what is durable.

mod aside;
mod certify;
mod chores;
mod deliver;
mod flag;
mod guard;
mod keyset;
mod lag;
mod letters;
mod pacer;
mod pause;
mod reached;
mod retry;
mod standby;
mod stream;
mod unused;

pub use deliver::{Delivery, MappedRow, Outcome};
pub use letters::{Decision, Outlook, outlook};
pub use stream::{Prepared, prepare as prepare_replication};

use crate::config::Config;
use crate::core::handoff::Source;
use crate::core::lease::{claim_patience, statement_patience, writer_patience};
use crate::core::mode::{Intent, Mode};
use crate::core::pace::{Pace, Reads};
use crate::error::{Error, Kind, Policy, Result};
use crate::instance;
use crate::intake::keyset::Unsettled;
use crate::intake::reached::Reached;
use crate::store::cursor::Registered;
use crate::store::lease::Lease;
use crate::store::{Store, connect};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long lanes may take to finish what they have begun once asked to stop; a supervisor waits ten seconds.
/// What is left of them is for resigning, and for a machine that is slow to end a process.
const DRAIN: Duration = Duration::from_secs(6);

/// How a lane's session ended when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Asked to stop, or everything that was there is handled.
    Done,
    /// The sources were redefined.
    Redefined,
}

/// What the stream can vouch for.
#[derive(Debug, Clone, Copy, Default)]
struct StreamRecord {
    /// Since when nothing can have passed the slot by.
    continuous_since: Option<Instant>,
    /// When the slot was last found not to continue where we stopped.
    gap_at: Option<Instant>,
}

/// What the lanes share.
struct Shared {
    config: Config,
    lease: Lease,
    once: bool,
    /// True: finish and end.
    stop: watch::Receiver<bool>,
    mode: watch::Sender<Mode>,
    reached: Reached,
    record: watch::Sender<StreamRecord>,
    /// What it cannot, although it streams.
    unsettled: watch::Sender<Option<Unsettled>>,
    /// The sources that the stream does not bring, or not now.
    unstreamed: watch::Sender<BTreeSet<String>>,
    /// Why the stream must not go on, if it must not.
    objection: watch::Sender<Option<String>>,
    /// After giving the slot up for its size: when it may be taken again.
    rejoin_at: watch::Sender<Option<Instant>>,
    /// Counts redefinitions of the sources.
    definitions: watch::Sender<u64>,
    /// Asks the keyset lane for a pass now.
    look: Notify,
    /// How fast to go.
    pace: watch::Sender<Pace>,
    /// When the last pass over each source that saw all of it began.
    looks: Mutex<HashMap<String, Instant>>,
    /// The latest reads of each source.
    reads: Mutex<HashMap<String, Reads>>,
}

impl Shared {
    fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// The rest that a loaded server is given before a batch, when the last one took so long. It is bounded and ends when
    /// we are told to stop, so what has arrived is always applied and acknowledged, only later.
    async fn rest(&self, worked: Duration) {
        let pause = self.pace.borrow().rest_after(worked);
        if pause.is_zero() || self.once {
            return;
        }
        self.stopped_within(pause).await;
    }

    /// Whether a source is read from its table alone, although there is a stream.
    fn is_unstreamed(&self, source: &str) -> bool {
        self.unstreamed.borrow().contains(source)
    }

    async fn told_to_stop(&self) {
        let _ = self.stop.clone().wait_for(|s| *s).await;
    }

    /// The stream does not bring everything that was written before now, though it be committed later: what the tables bring
    /// was not missed by it, and they are looked at at once and for as long as it takes.
    async fn not_vouched_for(&self, store: &Store) -> Result<()> {
        let (below, now) = (store.snapshot().await?.next, Instant::now());
        self.record.send_replace(StreamRecord { continuous_since: Some(now), gap_at: Some(now) });
        self.unsettled.send_replace(Some(Unsettled { below, closed_at: None }));
        self.look.notify_one();
        Ok(())
    }

    /// Sleeps until the pause is over or we are told to stop; whether we were.
    async fn stopped_within(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.stop.clone().wait_for(|s| *s)).await.is_ok()
    }

    fn looked(&self, source: &str, at: Instant) {
        if let Ok(mut looks) = self.looks.lock() {
            looks.insert(source.to_owned(), at);
        }
    }

    fn looked_at(&self, source: &str) -> Option<Instant> {
        self.looks.lock().ok().and_then(|looks| looks.get(source).copied())
    }

    fn note_read(&self, source: &str, took: Duration) {
        if let Ok(mut reads) = self.reads.lock() {
            reads.entry(source.to_owned()).or_default().note(took, self.config.pace.slow_read);
        }
    }

    /// A source that is read no longer is slow no longer.
    fn forget_reads_but_of(&self, read: impl Fn(&str) -> bool) {
        if let Ok(mut reads) = self.reads.lock() {
            reads.retain(|name, _| read(name));
        }
    }

    fn slowest_read(&self) -> Duration {
        let reads = self.reads.lock();
        reads.ok().and_then(|reads| reads.values().map(Reads::slowest).max()).unwrap_or_default()
    }
}

/// Runs until `shutdown` turns true, or with `once` until everything that is there is handled.
pub async fn run(config: Config, once: bool, mut shutdown: watch::Receiver<bool>) -> Result<()> {
    let store = open(&config, "gov-handoff").await?;
    store.refuse_standby().await?;
    // Whatever is wrong with one source is said when it has its turn; the others have theirs.
    let Registered { sources, broken } = store.registered(&config.worker).await?;
    if sources.is_empty() && broken.is_empty() {
        return Err(Error::config("no sources are registered; run `gov-handoff sources apply` first"));
    }
    if config.intent == Intent::Stream {
        // Asked for the stream and nothing else: say at once why it cannot be had, before anything is written. What
        // passes by itself, such as a predecessor's walsender that still holds the slot, is no reason to give up.
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
            prepared = stream::prepare(&config, &store, &sources, false) => match prepared {
                Err(e) if e.policy() != Policy::Retry => return Err(e),
                _ => {}
            }
        }
    }
    while !*shutdown.borrow() {
        let Some((lease, session)) = standby::seek(&config, once, instance::owner(), &mut shutdown).await?
        else {
            break;
        };
        tracing::info!(worker = lease.worker, owner = lease.owner, term = lease.term, "lease held");
        match lead(&config, once, lease.clone(), session, &mut shutdown).await {
            Ok(()) if once => return Ok(()),
            Ok(()) => {}
            Err(e) if e.kind == Kind::LeaseLost => {
                tracing::warn!(error = %e, "lease lost, standing by");
                tokio::select! {
                    _ = shutdown.wait_for(|stop| *stop) => {}
                    () = standby::lost(&config, &lease) => {}
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A session of the daemon: whoever does not answer for the time of a lease is taken for gone, as others take us.
async fn open(config: &Config, name: &str) -> Result<Store> {
    connect::open_within(&config.target, name, patience(config)).await
}

/// The same for a session that applies batches, after so many whose batch the server ended for its time.
async fn open_writer(config: &Config, name: &str, ended: u32) -> Result<Store> {
    connect::open_writer_within(&config.target, name, writer_patience(config.lease_ttl, ended)).await
}

/// The server ended a statement: it took longer than it was given, or somebody wanted it ended.
fn was_ended(e: &Error) -> bool {
    e.code.as_deref() == Some("57014")
}

/// A session that asks for the lease, after so many that got no answer.
async fn open_claimant(config: &Config, unanswered: u32) -> Result<Store> {
    let wait = claim_patience(config.lease_ttl, unanswered);
    connect::open_claimant(&config.target, "gov-handoff keeper", wait, patience(config)).await
}

fn patience(config: &Config) -> Duration {
    statement_patience(config.lease_ttl)
}

/// Runs the lanes under a lease until told to stop or the lease is lost. Priorities: the operator's word, then the
/// lease, then the lanes.
async fn lead(
    config: &Config,
    once: bool,
    lease: Lease,
    session: Store,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<()> {
    let (stop, stop_rx) = watch::channel(false);
    let shared = Arc::new(Shared {
        config: config.clone(),
        lease: lease.clone(),
        once,
        stop: stop_rx,
        mode: watch::Sender::new(Mode::first(config.intent)),
        reached: Reached::default(),
        unstreamed: watch::Sender::new(BTreeSet::new()),
        objection: watch::Sender::new(None),
        rejoin_at: watch::Sender::new(None),
        record: watch::Sender::new(StreamRecord::default()),
        unsettled: watch::Sender::new(None),
        definitions: watch::Sender::new(0),
        look: Notify::new(),
        pace: watch::Sender::new(Pace::first(&config.pace)),
        looks: Mutex::default(),
        reads: Mutex::default(),
    });
    let mut keeper = tokio::spawn(chores::keep(Arc::clone(&shared), session));
    let mut lanes = tokio::spawn(run_lanes(Arc::clone(&shared)));
    let ended = tokio::select! {
        biased;
        _ = shutdown.wait_for(|stop| *stop) => None,
        kept = &mut keeper => Some(flatten(kept)),
        done = &mut lanes => Some(flatten(done)),
    };
    let _ = stop.send(true);
    let lost = matches!(&ended, Some(Err(e)) if e.kind == Kind::LeaseLost);
    // What is committed is committed; what is not is read again by whoever comes next. So draining may be cut short, and
    // without the lease nothing could be committed any more.
    let drained = tokio::time::timeout(DRAIN, async {
        if !lost && !lanes.is_finished() {
            let _ = (&mut lanes).await;
        }
    });
    if drained.await.is_err() {
        tracing::warn!("draining took too long; the rest is left to the next writer");
    }
    // Both have ended before the lease is given back: nothing of ours is under way when another takes it.
    see_out(&mut lanes).await;
    see_out(&mut keeper).await;
    let outcome = ended.unwrap_or(Ok(()));
    if !lost {
        resign(config, &lease).await;
    }
    outcome
}

async fn run_lanes(shared: Arc<Shared>) -> Result<()> {
    if shared.once {
        // The stream first, then the tables: what the stream had is not found missing.
        if shared.config.intent != Intent::Poll {
            stream::lane(&shared).await?;
            tracing::info!(lsn = %shared.reached.lsn(), "what the slot held is through, comparing with the tables");
        }
        let read = keyset::lane(&shared).await;
        if read.as_ref().is_err_and(|e| !e.of_source) {
            return read;
        }
        // One source that cannot be read ends the run with its error, and not before the others are through.
        let finished = retry::finish(&shared).await;
        return read.and(finished);
    }
    let (keyset, retry) = (keyset::lane(&shared), retry::lane(&shared));
    if shared.config.intent == Intent::Poll {
        return tokio::try_join!(keyset, retry).map(|_| ());
    }
    tokio::try_join!(stream::lane(&shared), keyset, retry).map(|_| ())
}

/// Gives the lease back, so that a standby need not wait for it to expire.
async fn resign(config: &Config, lease: &Lease) {
    let resigned = async { open(config, "gov-handoff").await?.resign_lease(lease).await };
    match tokio::time::timeout(Duration::from_secs(2), resigned).await {
        Ok(Ok(_)) => tracing::info!("lease resigned"),
        Ok(Err(e)) => tracing::warn!(error = %e, "could not resign the lease; it will expire"),
        Err(_) => tracing::warn!("could not resign the lease in time; it will expire"),
    }
}

fn flatten(joined: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    joined.unwrap_or_else(|e| Err(Error::new(Kind::Internal, format!("a task of the daemon failed: {e}"))))
}

/// Ends a task and waits until it has: aborting only asks it to, at its next await.
async fn see_out<T>(task: &mut tokio::task::JoinHandle<T>) {
    if !task.is_finished() {
        task.abort();
        let _ = task.await;
    }
}

/// Looks a source up by name.
fn named(sources: &[Arc<Source>], name: &str) -> Option<Arc<Source>> {
    sources.iter().find(|s| s.name() == name).cloned()
}

/// Where the tests kill the process; nothing in a release build.
#[cfg(debug_assertions)]
pub fn failpoint(name: &str) {
    chores::failpoint(name);
}

#[cfg(not(debug_assertions))]
pub fn failpoint(_: &str) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a while to drop, as what a task holds may.
    struct Slow(Arc<Mutex<bool>>);

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(50));
            *self.0.lock().expect("no panic") = true;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_is_seen_out_holds_nothing_any_more() {
        let dropped = Arc::new(Mutex::new(false));
        let (held, (begun, begins)) = (Slow(Arc::clone(&dropped)), tokio::sync::oneshot::channel());
        let mut task = tokio::spawn(async move {
            let _held = held;
            let _ = begun.send(());
            std::future::pending::<()>().await;
        });
        begins.await.expect("it runs");
        see_out(&mut task).await;
        assert!(*dropped.lock().expect("no panic"));
        // One that has ended by itself, and was waited for, is left alone.
        let mut ended = tokio::spawn(async {});
        (&mut ended).await.expect("it ends");
        see_out(&mut ended).await;
    }
}
