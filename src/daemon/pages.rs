//! Workers that go page by page: each page of work becomes effects in one commit, behind the fence.
//!
//! ```text
//!   page ─▶ more? ─▶ page ─▶ … ─▶ nothing left ─▶ wait ─▶ page
//!     ├── an error: the session is opened again, with backoff, and the page is done again from what is durable
//!     └── the database rejects the page: it is halved until the bad item stands alone, which the worker sets aside
//! ```
//!
//! A worker is a name and a [`PageWorker`]. Lease, standby, keeper, pause, pace, heartbeat and health come from the frame;
//! the checkpoint comes from the gate that commits the page (`gov_worker_page`). An error costs the worker some time and
//! no other worker anything. A worker that fails again and again still ticks, so it is not silent: it has a finding of its
//! own, `worker_failing`.
//!
//! Such a worker has two sessions, its keeper's and its lane's; one of a long rest has its keeper's only.

use crate::config::Config;
use crate::core::finding::Severity;
use crate::core::pace::Limits;
use crate::core::page_size::PageSize;
use crate::daemon::backoff::Pause;
use crate::daemon::finding_flag::Flag;
use crate::daemon::keeper::{Keeper, Rounds};
use crate::daemon::open_session::open_worker;
use crate::daemon::pacer::{Pacer, Pacing};
use crate::daemon::supervisor::{Worker, supervise};
use crate::daemon::term::Term;
use crate::error::{Error, Kind, Policy, Result};
use crate::pulse::{self, Loop};
use crate::store::Session;
use crate::store::role::{Includes, ReadWriter};
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A lane that has nothing to do for at least this long closes its session.
const LONG_REST: Duration = Duration::from_secs(10);
/// A worker that has failed this often in a row is reported. Anybody may fail once.
const FAILING: u32 = 3;
/// A worker that has failed this often in a row will hardly recover by itself.
const FAILING_FOR_LONG: u32 = 20;

/// A worker that goes page by page.
pub trait PageWorker: Send + 'static {
    /// What the worker's session can do: [`role::Writer`](crate::store::role::Writer), or more where it reads sources.
    type Role: Send + Sync + 'static;

    /// Created again under each lease: no state of a former term is used.
    fn new(term: &Term) -> Self;

    /// One page of work: reads, decides, and commits the effects behind the fence. After an error it is called again, on
    /// another session, and starts from what is durable.
    fn page(
        &mut self,
        store: &mut Session<Self::Role>,
        page: PageContext<'_>,
    ) -> impl Future<Output = Result<PageDone>> + Send;

    /// The database rejects a page of one item, again. Sets that item aside, so that the next page goes on behind it, and
    /// returns true. A worker that cannot do so (the default) keeps trying, and has its finding.
    fn set_aside(
        &mut self,
        _store: &mut Session<Self::Role>,
        _page: PageContext<'_>,
        _rejected: &Error,
    ) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }

    /// What the lease row says of its progress.
    fn report(&self) -> Value {
        Value::Null
    }
}

pub struct PageContext<'a> {
    pub term: &'a Term,
    /// The first page after a time without work: a new run begins.
    pub begins: bool,
    size: PageSize,
}

impl PageContext<'_> {
    /// How many items this page may have; usually `most`.
    #[must_use]
    pub fn limit(&self, most: i64) -> i64 {
        self.size.of(most)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDone {
    pub rows: u64,
    /// There may be more work.
    pub more: bool,
    /// Call again after this time.
    pub wait: Duration,
}

impl PageDone {
    /// There may be more work.
    #[must_use]
    pub fn more(rows: u64) -> Self {
        Self { rows, more: true, wait: Duration::ZERO }
    }

    /// Nothing is left to do for now.
    #[must_use]
    pub fn idle(rows: u64, wait: Duration) -> Self {
        Self { rows, more: false, wait }
    }
}

/// How long a page may take at most.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// How often a worker without work turns.
const TURN_EVERY: Duration = Duration::from_secs(30);

/// Runs the worker `name` whenever this instance has its lease, until `shutdown` turns true; with `once` until nothing is
/// left to do.
pub async fn run<P>(config: &Config, name: &str, once: bool, shutdown: watch::Receiver<bool>) -> Result<()>
where
    P: PageWorker,
    ReadWriter: Includes<P::Role>,
{
    supervise::<Paged<P>>(config, name, once, shutdown).await
}

struct Paged<P>(PhantomData<P>);

/// What the lane and the keeper share.
struct PagedShared {
    term: Arc<Term>,
    pacing: Pacing,
    /// The last page found work. Only then is the load of the server this worker's concern.
    busy: AtomicBool,
    progress: Mutex<Value>,
    trouble: Mutex<Trouble>,
}

/// How often the lane has failed in a row, and why the last time.
#[derive(Default)]
struct Trouble {
    times: u32,
    /// Never the server's own message: it may quote a row.
    why: String,
}

impl PagedShared {
    fn note(&self, change: impl FnOnce(&mut Trouble)) {
        if let Ok(mut trouble) = self.trouble.lock() {
            change(&mut trouble);
        }
    }
}

impl<P: PageWorker> Worker for Paged<P>
where
    ReadWriter: Includes<P::Role>,
{
    type Shared = PagedShared;
    type Rounds = PagedRounds;

    fn share(term: Arc<Term>) -> PagedShared {
        let limits: &Limits = &term.config.pace;
        let pacing = Pacing::new(limits);
        let (busy, progress, trouble) = (AtomicBool::new(false), Mutex::new(Value::Null), Mutex::default());
        PagedShared { term, pacing, busy, progress, trouble }
    }

    async fn lanes(shared: Arc<PagedShared>) -> Result<()> {
        let (worker, size) = (P::new(&shared.term), PageSize::default());
        Lane { shared: &shared, worker, store: None, begins: true, size }.run().await
    }

    fn rounds(shared: Arc<PagedShared>) -> PagedRounds {
        let worker = &shared.term.lease.worker;
        PagedRounds { pacer: Pacer::new(worker), failing: Flag::new("worker_failing", worker), shared }
    }
}

struct Lane<'a, P: PageWorker> {
    shared: &'a PagedShared,
    worker: P,
    store: Option<Session<P::Role>>,
    begins: bool,
    size: PageSize,
}

impl<P: PageWorker> Lane<'_, P>
where
    ReadWriter: Includes<P::Role>,
{
    /// Runs until told to stop. After an error the lane starts over; a single run ends with it, because there is no later
    /// one.
    async fn run(mut self) -> Result<()> {
        let term = &*self.shared.term;
        let mut pause = Pause::up_to(term.config.lease_ttl / 3);
        let turning = pulse::enter("pages", &term.lease.worker, PATIENCE);
        while !term.stopping() {
            turning.turn().await;
            let begun = Instant::now();
            let waits = match self.page().await {
                Ok(done) if term.once && !done.more => return Ok(()),
                Ok(done) => {
                    pause.reset();
                    if done.more {
                        self.shared.pacing.rest(term, begun.elapsed()).await;
                    } else if done.wait >= LONG_REST {
                        self.store = None;
                    }
                    done.wait
                }
                Err(e) => match self.failed(e).await? {
                    true => Duration::ZERO,
                    false => pause.grow(),
                },
            };
            if !waits.is_zero() && rested(term, waits, &turning).await {
                break;
            }
        }
        Ok(())
    }

    async fn page(&mut self) -> Result<PageDone> {
        let term = &*self.shared.term;
        let page = PageContext { term, begins: self.begins, size: self.size };
        let done = self.worker.page(session(&mut self.store, term).await?, page).await?;
        self.begins = !done.more;
        self.size.passed();
        self.shared.busy.store(done.more, Ordering::Relaxed);
        if let Ok(mut progress) = self.shared.progress.lock() {
            *progress = self.worker.report();
        }
        self.shared.note(|trouble| *trouble = Trouble::default());
        Ok(done)
    }

    /// After an error: whether the page is tried again at once, because it is smaller or its bad item is gone.
    async fn failed(&mut self, e: Error) -> Result<bool> {
        let term = &*self.shared.term;
        // Whatever the error left behind in the session goes with it.
        self.store = None;
        if e.policy() == Policy::StandBy {
            return Err(e);
        }
        if (e.is_poison() || e.may_be_poison() || e.kind == Kind::SlowRead) && self.size.rejected() {
            tracing::debug!(worker = term.lease.worker, error = %e.told(), "a page failed, halving it");
            if e.is_poison() {
                return Ok(true);
            }
        } else if e.is_poison() && self.set_aside(&e).await? {
            tracing::warn!(
                worker = term.lease.worker,
                why = e.about_row(),
                "an item was rejected and set aside"
            );
            return Ok(true);
        } else if term.once {
            return Err(e);
        }
        tracing::warn!(worker = term.lease.worker, error = %e.told(), "a page failed, starting over");
        self.shared.note(|trouble| {
            *trouble = Trouble { times: trouble.times.saturating_add(1), why: e.about_row() }
        });
        Ok(false)
    }

    /// Asks the worker to set the only item of its page aside. If that fails too, the worker has failed as usual.
    async fn set_aside(&mut self, rejected: &Error) -> Result<bool> {
        let term = &*self.shared.term;
        let page = PageContext { term, begins: self.begins, size: self.size };
        let done =
            async { self.worker.set_aside(session(&mut self.store, term).await?, page, rejected).await };
        match done.await {
            Err(e) if e.policy() == Policy::StandBy => Err(e),
            Err(e) => {
                tracing::warn!(worker = term.lease.worker, error = %e.told(), "a rejected item could not be set aside");
                Ok(false)
            }
            done => done,
        }
    }
}

/// The lane's session, opened if there is none.
async fn session<'s, Role>(open: &'s mut Option<Session<Role>>, term: &Term) -> Result<&'s mut Session<Role>>
where
    ReadWriter: Includes<Role>,
{
    if open.is_none() {
        let name = format!("gov-handoff {}", term.lease.worker);
        *open = Some(open_worker(&term.config, &name).await?.into_role());
    }
    open.as_mut().ok_or_else(|| Error::new(Kind::Internal, "the lane has no session"))
}

/// Waits for more work, and turns meanwhile. Returns whether the worker was told to stop.
async fn rested(term: &Term, wait: Duration, turning: &Loop) -> bool {
    let until = Instant::now() + wait;
    loop {
        turning.turn().await;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return term.stopping();
        }
        if term.stopped_within(left.min(TURN_EVERY)).await {
            return true;
        }
    }
}

/// What the keeper looks after for such a worker: its pace, while it works.
struct PagedRounds {
    shared: Arc<PagedShared>,
    pacer: Pacer,
    failing: Flag,
}

impl PagedRounds {
    /// The finding while the lane fails, and whether it does.
    fn trouble(&self) -> Option<(Severity, Value)> {
        let trouble = self.shared.trouble.lock().ok()?;
        let severity = if trouble.times >= FAILING_FOR_LONG { Severity::High } else { Severity::Warning };
        let worker = &self.shared.term.lease.worker;
        let detail =
            json!({ "worker": worker, "failures_in_a_row": trouble.times, "last_error": trouble.why });
        (trouble.times >= FAILING).then_some((severity, detail))
    }
}

impl Rounds for PagedRounds {
    fn report(&self) -> Value {
        let progress = self.shared.progress.lock().map(|progress| progress.clone()).unwrap_or_default();
        json!({ "progress": progress, "pace_reason": self.shared.pacing.reason() })
    }

    async fn news(&mut self) {
        std::future::pending().await
    }

    async fn look(&mut self, keeper: &mut Keeper<'_>) -> Result<bool> {
        if !self.shared.busy.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let repaced = self.pacer.look(keeper.store, &self.shared.term, &self.shared.pacing).await;
        Ok(keeper.complaints.tolerate("look at the load", repaced)?.unwrap_or(false))
    }

    async fn chores(&mut self, keeper: &mut Keeper<'_>) -> Result<()> {
        let trouble = self.trouble();
        let flagged = self.failing.set(keeper.store, trouble).await;
        keeper.complaints.tolerate("report a failing worker", flagged).map(|_| ())
    }
}
