//! Measures how far behind we are, and says so when it is too far.

use crate::core::lag::{Mileposts, severity};
use crate::core::mode::Mode;
use crate::error::Result;
use crate::intake::Shared;
use crate::intake::flag::Flag;
use crate::store::Store;
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// An idle stream hears of the log's end this seldom; anything below is no lag.
const STREAM_GRAIN: Duration = Duration::from_secs(15);

pub struct LagWatch {
    since: Instant,
    posts: Mileposts,
    handoff: Flag,
    cursors: HashMap<String, Flag>,
    /// Since when everything is known to be handed off.
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

    pub async fn look(&mut self, store: &Store, shared: &Shared, sources: &[String]) -> Result<()> {
        let (config, mode) = (&shared.config, shared.mode.borrow().clone());
        let streaming = mode == Mode::Streaming;
        let turn = if mode.hurries(config.intent) { config.poll_interval } else { config.reconcile_interval };
        // A reader that looks rarely on purpose is not behind for that.
        let mut limit = config.lag_limit.max(turn * 3);
        let mut worst = Duration::ZERO;
        for source in sources {
            let lag = shared.looked_at(source).unwrap_or(self.since).elapsed();
            worst = worst.max(lag);
            let flag = self
                .cursors
                .entry(source.clone())
                .or_insert_with(|| Flag::new("cursor_lag", &format!("{}:{source}", config.worker)));
            let detail = || json!({ "worker": config.worker, "source": source, "seconds": lag.as_secs(), "limit_seconds": limit.as_secs() });
            flag.set(store, severity(lag, limit).map(|s| (s, detail()))).await?;
        }
        self.lag = worst;
        if streaming {
            self.posts.note(store.current_lsn().await?, shared.reached.lsn(), Instant::now());
            self.lag = self.posts.lag(Instant::now());
            limit = config.lag_limit.max(STREAM_GRAIN);
        } else {
            self.posts.forget();
        }
        let detail = || json!({ "worker": config.worker, "mode": mode.name(), "seconds": self.lag.as_secs(), "limit_seconds": limit.as_secs() });
        self.handoff.set(store, severity(self.lag, limit).map(|s| (s, detail()))).await
    }
}
