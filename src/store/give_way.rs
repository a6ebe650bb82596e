//! A read gives way to whoever waits for a lock that it holds.
//!
//! A long read holds the weakest lock there is on its source, and yet `alter table` waits for it, and every birth waits behind
//! that. So while a read lasts, another session of ours looks whether somebody waits for it. If so, the read is cancelled, its
//! transaction ends, and the source is read again later. A birth waits for us about half a second: the time between two looks
//! and the time to cancel.
//!
//! Migrations that come again and again can keep a long pass from its end for as long as they come. That is the intended
//! order: births and their migrations go first, and each next pass tries again.

use crate::error::{Error, Kind, Result};
use crate::store::role::Onlooker;
use crate::store::session::Watched;
use crate::store::{Session, connect};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a read may last before anybody looks, and how often they look then. Most reads take a few milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a look, or cancelling the read, may take.
const LOOK: Duration = Duration::from_secs(5);

/// Looks after one read. It opens a session only if the read lasts, and works only while it is waited for.
pub(super) struct Lookout {
    looking: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Somebody waits: set before the read is cancelled, so that the reason is known when the read fails.
    seen: Arc<AtomicBool>,
    over: bool,
}

impl<R> Session<R> {
    /// For a read that begins now.
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

    /// Ends when somebody waits for the session and its statement is cancelled.
    pub async fn noticed(&mut self) {
        if !self.over {
            (&mut self.looking).await;
            self.over = true;
        }
    }

    /// Does some of the reading, unless somebody waits for it to end.
    pub async fn unless<T>(&mut self, reading: impl Future<Output = Result<T>>) -> Result<T> {
        let seen = Arc::clone(&self.seen);
        tokio::select! {
            biased;
            read = reading => read.map_err(|e| if seen.load(Ordering::Relaxed) { gave_way() } else { e }),
            () = self.noticed() => Err(gave_way()),
        }
    }
}

/// It carries no SQLSTATE: nothing is wrong with the source, and nobody has to be told.
pub(super) fn gave_way() -> Error {
    Error::new(Kind::SourceLocked, "somebody waited for a lock that the read held; it gave way")
}

async fn look(watched: Arc<Watched>, seen: Arc<AtomicBool>) {
    let mut session = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match tokio::time::timeout(LOOK, is_waited_for(&watched, &mut session)).await {
            Ok(Ok(true)) => break,
            Ok(Ok(false)) => {}
            // Without a look the read goes on: its own bounds stand, and the server may have no connection to spare.
            Ok(Err(e)) => {
                tracing::debug!(error = %e, "cannot see whether somebody waits for the read");
                session = None;
            }
            Err(_) => session = None,
        }
    }
    seen.store(true, Ordering::Relaxed);
    // In vain if the session runs no statement; then it is the end of its transaction that lets go.
    if let Ok(Err(e)) = tokio::time::timeout(LOOK, connect::cancel(&watched.target, &watched.cancel)).await {
        tracing::debug!(error = %e, "the read could not be cancelled");
    }
}

async fn is_waited_for(watched: &Watched, session: &mut Option<Session<Onlooker>>) -> Result<bool> {
    let store = match session {
        Some(store) => store,
        None => session.insert(connect::open_observer(&watched.target, "gov-handoff lookout").await?),
    };
    Ok(store.one(include_str!("sql/session/waited_for.sql"), &[&watched.pid]).await?.try_get(0)?)
}
