//! The state of the stream ([`StreamState`]) that the lanes share: changed in one place, read as a whole, waited for.

use crate::core::lsn::Lsn;
use crate::core::mode::Intent;
use crate::core::stream_state::StreamState;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

pub struct StreamProgress {
    state: watch::Sender<StreamState>,
    /// How many tasks wait for a position. The position moves with every batch, so it is announced only to them.
    waiting: AtomicUsize,
}

impl StreamProgress {
    pub fn new(intent: Intent) -> Self {
        Self { state: watch::Sender::new(StreamState::first(intent)), waiting: AtomicUsize::new(0) }
    }

    /// The current state, as a copy: holding the original would block its writers.
    pub fn now(&self) -> StreamState {
        self.state.borrow().clone()
    }

    /// Reads from the state without a copy.
    pub fn read<T>(&self, look: impl FnOnce(&StreamState) -> T) -> T {
        look(&self.state.borrow())
    }

    /// Changes the state, and announces it if it differs now.
    pub fn update(&self, change: impl FnOnce(&mut StreamState)) {
        self.state.send_if_modified(|state| {
            let before = state.clone();
            change(state);
            *state != before
        });
    }

    /// Notes that everything that was committed before `lsn` is handed off. Announced only if a task waits for a
    /// position.
    ///
    /// No wake-up is lost. A task counts itself as waiting before it looks at the state, and both this change and
    /// that look hold the state's lock. So either this change sees the count, or the task sees this position.
    pub fn move_to(&self, lsn: Lsn) {
        self.state.send_if_modified(|state| state.move_to(lsn) && self.waiting.load(Ordering::SeqCst) > 0);
    }

    /// Waits until the stream has passed `lsn`. False if the stream did not within this time, or ended. A lost stream
    /// brings nothing more, and waiting for it would delay the fallback.
    pub async fn passes(&self, lsn: Lsn, within: Duration) -> bool {
        let _waiting = Waiting::one_more(&self.waiting);
        let mut state = self.state.subscribe();
        let passed = state.wait_for(|state| state.reached >= lsn || !state.is_streaming());
        match tokio::time::timeout(within, passed).await {
            Ok(Ok(state)) => state.reached >= lsn,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Waits for a reason why the stream must end.
    pub async fn objected(&self) -> String {
        let mut state = self.state.subscribe();
        let objected = state.wait_for(|state| state.objection.is_some()).await;
        objected.ok().and_then(|state| state.objection.clone()).unwrap_or_default()
    }

    /// The changes of the mode from now on.
    pub fn mode_changes(&self) -> ModeChanges {
        let state = self.state.subscribe();
        let seen = state.borrow().mode_changes;
        ModeChanges { state, seen }
    }
}

/// One reader's view of how often the mode has changed.
pub struct ModeChanges {
    state: watch::Receiver<StreamState>,
    seen: u64,
}

impl ModeChanges {
    /// Whether the mode has changed since the last call of this or of [`Self::changed`].
    pub fn take(&mut self) -> bool {
        let now = self.state.borrow().mode_changes;
        std::mem::replace(&mut self.seen, now) != now
    }

    /// Waits until the mode has changed. Cancel safe: the change can still be taken.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        if self.state.wait_for(|state| state.mode_changes != seen).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::continuity::Continuity;
    use std::sync::Arc;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    fn streaming() -> Arc<StreamProgress> {
        let progress = StreamProgress::new(Intent::Auto);
        progress.update(|s| {
            s.begin(&Continuity::First(1.into()), Instant::now());
            s.started();
        });
        Arc::new(progress)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_waits_for_a_position_is_woken_and_no_other() {
        let progress = streaming();
        let watcher = progress.state.subscribe();
        progress.move_to(5.into());
        assert!(!watcher.has_changed().expect("open"), "nobody waits");
        for lsn in 6..2_000_u64 {
            let passed = tokio::spawn({
                let progress = Arc::clone(&progress);
                async move { progress.passes(lsn.into(), LONG).await }
            });
            progress.move_to(lsn.into());
            assert!(passed.await.expect("it ends"), "{lsn}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_is_not_waited_for() {
        let progress = streaming();
        let waits = progress.passes(9.into(), LONG);
        progress.update(|s| s.faulted("gone"));
        assert!(!waits.await);
        assert!(!progress.passes(9.into(), Duration::from_millis(1)).await);
    }

    #[tokio::test]
    async fn a_change_of_the_mode_is_taken_once() {
        let progress = streaming();
        let mut changes = progress.mode_changes();
        assert!(!changes.take());
        progress.update(|s| s.faulted("gone"));
        changes.changed().await;
        assert!(changes.take() && !changes.take());
        // There and back again is a change as well.
        progress.update(super::StreamState::started);
        progress.update(|s| s.faulted("gone"));
        assert!(changes.take());
    }

    #[tokio::test]
    async fn an_objection_that_was_there_before_is_heard() {
        let progress = streaming();
        progress.update(|s| s.object("narrowed".to_owned()));
        assert_eq!(progress.objected().await, "narrowed");
    }
}
