//! One holding of the lease, shared by all tasks under it.

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::store::lease::Lease;
use std::time::Duration;
use tokio::sync::watch;

pub struct Term {
    pub config: Config,
    pub lease: Lease,
    /// End when everything that is there is handled.
    pub once: bool,
    /// True: finish and end.
    stop: watch::Receiver<bool>,
    /// True: an operator has paused the worker. Only the keeper writes it, after it has asked the database.
    paused: watch::Sender<bool>,
}

impl Term {
    pub fn new(config: Config, lease: Lease, once: bool, stop: watch::Receiver<bool>, paused: bool) -> Self {
        Self { config, lease, once, stop, paused: watch::Sender::new(paused) }
    }

    pub fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// Waits until the worker is paused, or until it is not.
    pub async fn pause_is(&self, paused: bool) {
        let _ = self.paused.subscribe().wait_for(|now| *now == paused).await;
    }

    /// Notes what the database says. Returns whether that is new.
    pub fn note_paused(&self, paused: bool) -> bool {
        self.paused.send_if_modified(|now| std::mem::replace(now, paused) != paused)
    }

    pub fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    pub async fn told_to_stop(&self) {
        let _ = self.stop.clone().wait_for(|s| *s).await;
    }

    /// Sleeps until the pause is over or the term is told to stop. Returns whether it was told to stop.
    pub async fn stopped_within(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.told_to_stop()).await.is_ok()
    }

    /// Whether the watchdog should miss this instance: a single run, or a selftest, is not silent when it has ended.
    pub fn stays(&self) -> bool {
        !self.once && self.config.worker != REHEARSAL
    }
}
