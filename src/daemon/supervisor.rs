//! Takes the lease, runs a worker under it, drains and resigns; stands by when the lease is lost.

use crate::config::Config;
use crate::daemon::backoff::Pause;
use crate::daemon::keeper::{self, Rounds};
use crate::daemon::open_session::open;
use crate::daemon::standby;
use crate::daemon::term::Term;
use crate::error::{Error, Kind, Policy, Result};
use crate::instance;
use crate::store::Writer;
use crate::store::lease::Lease;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long lanes may take to finish what they have begun once asked to stop. A service manager often waits ten
/// seconds. The rest of that time is for resigning, and for a machine that is slow to end a process.
const DRAIN: Duration = Duration::from_secs(6);

/// A worker: the state that its lanes share under one lease, the lanes, and what the keeper looks after for it.
pub trait Worker {
    type Shared: Send + Sync + 'static;
    type Rounds: Rounds + 'static;

    /// Created again under each lease: no state of a former term is used.
    fn share(term: Arc<Term>) -> Self::Shared;

    /// Runs until told to stop, or with `once` until everything that is there is handled.
    fn lanes(shared: Arc<Self::Shared>) -> impl Future<Output = Result<()>> + Send + 'static;

    fn rounds(shared: Arc<Self::Shared>) -> Self::Rounds;
}

/// Runs a worker whenever this instance has its lease, until `shutdown` turns true; with `once` one time.
pub async fn supervise<W: Worker>(
    config: &Config,
    worker: &str,
    once: bool,
    mut shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let owner = instance::owner_of(worker);
    let config = &config.owned_by(&owner);
    let mut pause = Pause::up_to(config.lease_ttl / 3);
    while !*shutdown.borrow() {
        let Some((lease, session)) = standby::seek(config, worker, once, &owner, &mut shutdown).await? else {
            break;
        };
        tracing::info!(worker, owner = lease.owner, term = lease.term, "lease held");
        let begun = Instant::now();
        match lead::<W>(config, once, lease.clone(), session, &mut shutdown).await {
            Ok(()) if once => return Ok(()),
            Ok(()) => {}
            Err(e) if e.kind == Kind::LeaseLost => {
                tracing::warn!(worker, error = %e.told(), "lease lost, standing by");
                tokio::select! {
                    _ = shutdown.wait_for(|stop| *stop) => {}
                    () = standby::lost(config, &lease) => {}
                }
            }
            // The connection that claimed the lease may be cut off before it answers anything else. No lane or keeper of that term
            // runs here any more: `lead` ends them before it returns. So it is safe to claim again.
            Err(e) if !once && e.policy() == Policy::Retry => {
                tracing::warn!(worker, error = %e.told(), "asking for the lease again");
                if begun.elapsed() > config.lease_ttl {
                    pause.reset();
                }
                tokio::select! {
                    _ = shutdown.wait_for(|stop| *stop) => {}
                    () = tokio::time::sleep(pause.grow()) => {}
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Holds the lease until told to stop or the lease is lost, and runs the lanes for as long as the worker is not paused.
///
/// The keeper runs all the time: a paused worker ticks, reports and guards its slot. When an operator pauses the worker,
/// the lanes finish and end as they do at a shutdown. When it is resumed, they start from what is durable, under the same
/// lease.
async fn lead<W: Worker>(
    config: &Config,
    once: bool,
    lease: Lease,
    session: Writer,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<()> {
    let paused = session.is_paused(&lease.worker).await?;
    let (stop, told) = watch::channel(false);
    let term = Arc::new(Term::new(config.clone(), lease.clone(), once, told, paused));
    let shared = Arc::new(W::share(Arc::clone(&term)));
    let rounds = W::rounds(Arc::clone(&shared));
    let kept = Arc::clone(&term);
    let mut keeper = tokio::spawn(async move { keeper::keep(&kept, rounds, session).await });
    let outcome = loop {
        let ended = match rest(&term, &mut keeper, shutdown).await {
            None => work::<W>(&term, &shared, &stop, &mut keeper, shutdown).await,
            ended => ended,
        };
        match ended {
            Some(outcome) => break outcome,
            None => drop(stop.send(false)),
        }
    };
    // The lanes have ended. The keeper ends before the lease is given back: no work of this instance is running when
    // another one takes it.
    see_out(&mut keeper).await;
    if !matches!(&outcome, Err(e) if e.kind == Kind::LeaseLost) {
        resign(config, &lease).await;
    }
    outcome
}

type Task = tokio::task::JoinHandle<Result<()>>;

/// Waits while the worker is paused. `None`: it may work. Otherwise the holding of the lease is over, and how. A single run
/// does not wait: nobody may be there to resume it.
async fn rest(term: &Term, keeper: &mut Task, shutdown: &mut watch::Receiver<bool>) -> Option<Result<()>> {
    if !term.is_paused() {
        return None;
    }
    if term.once {
        let worker = &term.lease.worker;
        let told = format!("{worker} is paused; `gov-handoff resume {worker}` lets it work again");
        return Some(Err(Error::new(Kind::Refused, told)));
    }
    tracing::info!(worker = term.lease.worker, "paused");
    tokio::select! {
        biased;
        _ = shutdown.wait_for(|stop| *stop) => Some(Ok(())),
        kept = keeper => Some(flatten(kept)),
        () = term.pause_is(false) => {
            tracing::info!(worker = term.lease.worker, "resumed");
            None
        }
    }
}

/// Runs the lanes until told to stop, paused, or the lease is lost. Priorities: the operator's request to stop, then the
/// lease, then the request to pause, then the lanes. `None`: paused. The lanes have ended when this returns.
async fn work<W: Worker>(
    term: &Arc<Term>,
    shared: &Arc<W::Shared>,
    stop: &watch::Sender<bool>,
    keeper: &mut Task,
    shutdown: &mut watch::Receiver<bool>,
) -> Option<Result<()>> {
    let mut lanes = tokio::spawn(W::lanes(Arc::clone(shared)));
    let ended = tokio::select! {
        biased;
        _ = shutdown.wait_for(|stop| *stop) => Some(Ok(())),
        kept = keeper => Some(flatten(kept)),
        () = term.pause_is(true) => None,
        done = &mut lanes => Some(flatten(done)),
    };
    let _ = stop.send(true);
    let lost = matches!(&ended, Some(Err(e)) if e.kind == Kind::LeaseLost);
    // The next writer reads everything again that is not committed. So draining may be cut short. Without the lease
    // nothing could be committed anyway.
    let drained = tokio::time::timeout(DRAIN, async {
        if !lost && !lanes.is_finished() {
            let _ = (&mut lanes).await;
        }
    });
    if drained.await.is_err() {
        tracing::warn!(
            worker = term.lease.worker,
            "draining took too long; the rest is left to the next writer"
        );
    }
    see_out(&mut lanes).await;
    ended
}

/// Gives the lease back, so that a standby need not wait until it expires.
async fn resign(config: &Config, lease: &Lease) {
    let resigned = async { open(config, "gov-handoff").await?.resign_lease(lease).await };
    match tokio::time::timeout(Duration::from_secs(2), resigned).await {
        Ok(Ok(_)) => tracing::info!("lease resigned"),
        Ok(Err(e)) => tracing::warn!(error = %e.told(), "could not resign the lease; it will expire"),
        Err(_) => tracing::warn!("could not resign the lease in time; it will expire"),
    }
}

fn flatten(joined: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    joined.unwrap_or_else(|e| Err(Error::new(Kind::Internal, format!("a task of the daemon failed: {e}"))))
}

/// Ends a task and waits for its end: `abort` alone only asks the task to end at its next await.
async fn see_out<T>(task: &mut tokio::task::JoinHandle<T>) {
    if !task.is_finished() {
        task.abort();
        let _ = task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

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
