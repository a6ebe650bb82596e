//! A read gives way to a session that waits for a lock that the read holds.
//!
//! A long read holds the weakest lock on its source, but `alter table` waits even for that lock, and every insert waits
//! behind `alter table`. So during a read another session of ours checks whether somebody waits for it. If so, the
//! daemon cancels the read and ends its transaction, and reads the source again later. An insert waits about half a
//! second for us: the interval between two checks and the time to cancel.
//!
//! Migrations that come again and again can keep a long pass from ending. This order is intended: inserts and
//! migrations go first, and the next pass tries again.

use crate::error::{Error, Kind, Result};
use crate::store::role::Onlooker;
use crate::store::session::Watched;
use crate::store::{Session, connect};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The delay before the first check, and the interval between checks. Most reads end within a few milliseconds, before
/// any check.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The time limit of one check, and of cancelling the read.
const LOOK: Duration = Duration::from_secs(5);

/// Watches over one read. It opens a session only if the read lasts, and makes progress only while the caller polls it.
pub(super) struct Lookout {
    looking: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Another session waits. The flag is set before the read is cancelled, so that the reason is known when the read
    /// fails.
    seen: Arc<AtomicBool>,
    over: bool,
}

impl<R> Session<R> {
    /// A lookout for a read that begins now.
    pub(super) fn lookout(&self) -> Lookout {
        Lookout::after(&self.watched)
    }
}

impl Lookout {
    pub fn after(watched: &Arc<Watched>) -> Self {
        let seen = Arc::new(AtomicBool::new(false));
        let looking = Box::pin(look(Arc::clone(watched), Arc::clone(&seen)));
        Self { looking, seen, over: false }
    }

    /// Returns when another session waits for this one and the statement has been cancelled.
    pub async fn noticed(&mut self) {
        if !self.over {
            (&mut self.looking).await;
            self.over = true;
        }
    }

    /// Runs a part of the read, unless another session waits for its end.
    pub async fn unless<T>(&mut self, reading: impl Future<Output = Result<T>>) -> Result<T> {
        let seen = Arc::clone(&self.seen);
        tokio::select! {
            biased;
            read = reading => read.map_err(|e| if seen.load(Ordering::Relaxed) { gave_way() } else { e }),
            () = self.noticed() => Err(gave_way()),
        }
    }
}

/// The error has no SQLSTATE: the source is in order and needs no finding.
pub(super) fn gave_way() -> Error {
    Error::new(Kind::SourceLocked, "another session waited for a lock that the read held; it gave way")
}

async fn look(watched: Arc<Watched>, seen: Arc<AtomicBool>) {
    let mut session = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match tokio::time::timeout(LOOK, is_waited_for(&watched, &mut session)).await {
            Ok(Ok(true)) => break,
            Ok(Ok(false)) => {}
            // If the check fails, the read goes on under its own time limits. The server may have no free connection.
            Ok(Err(e)) => {
                tracing::debug!(error = %e.told(), "cannot check whether another session waits for the read");
                session = None;
            }
            Err(_) => session = None,
        }
    }
    seen.store(true, Ordering::Relaxed);
    // The cancel request has no effect if the session runs no statement. Then the end of its transaction releases the
    // lock.
    if let Ok(Err(e)) = tokio::time::timeout(LOOK, connect::cancel(&watched)).await {
        tracing::debug!(error = %e.told(), "the read could not be cancelled");
    }
}

async fn is_waited_for(watched: &Watched, session: &mut Option<Session<Onlooker>>) -> Result<bool> {
    let store = match session {
        Some(store) => store,
        None => session.insert(connect::open_observer(&watched.target, "gov-handoff lookout").await?),
    };
    Ok(store.one(include_str!("sql/session/waited_for.sql"), &[&watched.pid]).await?.try_get(0)?)
}
