//! Measures how far behind the worker is, and raises a finding when the lag is over its limit.

use crate::core::lag::{Mileposts, severity};
use crate::daemon::finding_flag::Flag;
use crate::daemon::stream_progress::StreamProgress;
use crate::daemon::term::Term;
use crate::error::Result;
use crate::store::Writer;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// For each source: when the last complete pass over it began.
#[derive(Default)]
pub struct Looks(Mutex<HashMap<String, Instant>>);

impl Looks {
    pub fn note(&self, source: &str, at: Instant) {
        if let Ok(mut looks) = self.0.lock() {
            looks.insert(source.to_owned(), at);
        }
    }

    pub fn at(&self, source: &str) -> Option<Instant> {
        self.0.lock().ok().and_then(|looks| looks.get(source).copied())
    }
}

/// An idle stream learns the end of the log only this often, so less than this is not a lag.
const STREAM_GRAIN: Duration = Duration::from_secs(15);

pub struct LagWatch {
    since: Instant,
    posts: Mileposts,
    handoff: Flag,
    cursors: HashMap<String, Flag>,
    /// The time since the last moment up to which everything is known to be handed off.
    pub lag: Duration,
}

impl LagWatch {
    pub fn new(worker: &str) -> Self {
        Self {
            since: Instant::now(),
            posts: Mileposts::default(),
            handoff: Flag::new("handoff_lag", worker),
            cursors: HashMap::new(),
            lag: Duration::ZERO,
        }
    }

    pub async fn look(
        &mut self,
        store: &Writer,
        term: &Term,
        stream: &StreamProgress,
        looks: &Looks,
        sources: &[String],
    ) -> Result<()> {
        let (config, stream) = (&term.config, stream.now());
        let mode = &stream.mode;
        let turn = if mode.hurries(config.intent) { config.poll_interval } else { config.reconcile_interval };
        // A reader with a slow cadence is not behind because of that cadence.
        let mut limit = config.lag_limit.max(turn * 3);
        let mut worst = Duration::ZERO;
        for source in sources {
            let lag = looks.at(source).unwrap_or(self.since).elapsed();
            worst = worst.max(lag);
            let flag = self
                .cursors
                .entry(source.clone())
                .or_insert_with(|| Flag::new("cursor_lag", &format!("{}:{source}", config.worker)));
            let detail = || json!({ "worker": config.worker, "source": source, "seconds": lag.as_secs(), "limit_seconds": limit.as_secs() });
            flag.set(store, severity(lag, limit).map(|s| (s, detail()))).await?;
        }
        self.lag = worst;
        if stream.is_streaming() {
            self.posts.note(store.current_lsn().await?, stream.reached, Instant::now());
            self.lag = self.posts.lag(Instant::now());
            limit = config.lag_limit.max(STREAM_GRAIN);
        } else {
            self.posts.forget();
        }
        let detail = || json!({ "worker": config.worker, "mode": mode.name(), "seconds": self.lag.as_secs(), "limit_seconds": limit.as_secs() });
        self.handoff.set(store, severity(self.lag, limit).map(|s| (s, detail()))).await
    }
}
